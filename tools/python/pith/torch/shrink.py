"""Going on without ranks that have died."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from pith.torch.backend import CPU, backend_of


def shrink(
    exclude: Sequence[int] = (), group: dist.ProcessGroup | None = None
) -> dist.ProcessGroup:
    """Makes a process group of the survivors, and destroys the old one.

    All living ranks that are not in `exclude` must call it. If the group is the default group, the
    new one becomes the default group, its ranks are numbered from 0, and all other groups are
    destroyed. Objects that use the old group, as a DistributedDataParallel, must be made anew.
    """
    backend = backend_of(group, CPU)
    old_rank, old_size = backend.rank(), backend.size()
    smaller = backend.shrink(list(exclude), 0, None)
    survivors = _ranks_of(smaller, old_rank)
    gone = set(range(old_size)) - set(survivors)
    is_default = group is None or group is dist.group.WORLD
    info = c10d._prepare_shrink_target_group(group)
    made = c10d._finalize_shrunk_group(info, _global(info, gone), smaller)
    _name_backend(made, smaller)
    if is_default:
        c10d._world.pg_group_ranks[made] = {rank: rank for rank in range(len(survivors))}
    return made


def _name_backend(group: dist.ProcessGroup, backend: object) -> None:
    """PyTorch calls the backend of every shrunken group on the CPU Gloo, and DDP believes it."""
    kind = dist.ProcessGroup.BackendType.CUSTOM
    for device in ("cpu", "cuda"):
        group._register_backend(torch.device(device), kind, backend)
    group._set_default_backend(kind)


def _ranks_of(backend: object, old_rank: int) -> list[int]:
    """The old ranks of the members of a new group."""
    mine = torch.tensor([old_rank])
    everyones = torch.zeros(backend.size(), dtype=mine.dtype)  # type: ignore[attr-defined]
    backend._allgather_base(everyones, mine).wait()  # type: ignore[attr-defined]
    return [int(rank) for rank in everyones]


def _global(info: dict[str, object], ranks: set[int]) -> set[int]:
    members = dist.get_process_group_ranks(info["process_group"])  # type: ignore[arg-type]
    return {members[rank] for rank in ranks}
