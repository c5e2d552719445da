"""The backend "pith" of torch.distributed."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from pith.torch import _backend


def _timeout_setting() -> float | None:
    """PITH_TIMEOUT, which goes before a group's timeout."""
    try:
        return float(os.environ["PITH_TIMEOUT"])
    except (KeyError, ValueError):  # libpith tells what is wrong with it
        return None


def _create(options: Any, _pg_options: Any) -> Any:
    return _backend.make_process_group(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout.total_seconds(),
        _timeout_setting(),
    )


def register() -> None:
    if not hasattr(dist.Backend, "PITH"):
        dist.Backend.register_backend("pith", _create, extended_api=True, devices=["cpu", "cuda"])


def backend_of(group: dist.ProcessGroup | None, device: torch.device) -> Any:
    """The ProcessGroupPith behind a group of torch.distributed."""
    group = group if group is not None else dist.group.WORLD
    if group is None:
        raise ValueError("torch.distributed is not initialized")
    backend = group._get_backend(device)
    backend = getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
    if not isinstance(backend, _backend.ProcessGroupPith):
        name = dist.get_backend(group)
        raise ValueError(f"the process group has the backend {name}, expected pith")
    return backend


def failed_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """The ranks of the group whose process or host is gone."""
    return list(backend_of(group, torch.device("cpu")).failed())
