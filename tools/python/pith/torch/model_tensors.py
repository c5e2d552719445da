"""The tensors of a model, as this rank has them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
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
    """Gives all ranks of the group the parameters and buffers of its first one.

    Raises on all of them where models differ in what they have.
    """
    _check_alike(model, group)
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(local(tensor), group=group, group_src=0)


def _check_alike(model: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
    models: list[list[str]] = [[] for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(models, list(_parts_of(model)), group=group)
    for rank, parts in enumerate(models):
        for expected, part in zip_longest(models[0], parts, fillvalue="no more"):
            if part != expected:
                raise ValueError(
                    f"the model of rank {rank} of the group has {part}, "
                    f"expected {expected} as on rank 0"
                )


def _parts_of(model: torch.nn.Module) -> Iterator[str]:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        yield f"{name} of {tensor.dtype} and the shape {tuple(local(tensor).shape)} here"
    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            yield f"the FSDP module {name!r}"
