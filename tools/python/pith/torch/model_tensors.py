"""The tensors of a model, as this rank has them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of this rank: its shard, if the tensor is distributed."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def other_shards(parameter: DTensor, group: dist.ProcessGroup) -> list[int]:
    """The other ranks of the group that hold other shards of the parameter."""
    others = set(dist.get_process_group_ranks(group)) - {dist.get_rank()}
    return sorted(others.intersection(parameter.device_mesh.mesh.flatten().tolist()))


def broadcast_model(model: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
    """Gives all ranks of the group the parameters and buffers of its first one."""
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(local(tensor), group=group, group_src=0)
