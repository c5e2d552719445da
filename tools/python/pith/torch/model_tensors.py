"""The tensors of a model, as this rank has them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of this rank: its shard, if the tensor is distributed."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def broadcast_model(model: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
    """Gives all ranks of the group the parameters and buffers of its first one."""
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(local(tensor), group=group, group_src=0)
