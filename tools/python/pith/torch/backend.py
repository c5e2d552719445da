"""The backend "pith" of torch.distributed."""

from __future__ import annotations

import atexit
import os
import secrets
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from pith.torch import _backend

CPU = torch.device("cpu")
START = "pith/start"
UNREACHABLE = "cannot reach the bootstrap root"  # in libpith's message


def _timeout_setting() -> float | None:
    """PITH_TIMEOUT, which goes before a group's timeout."""
    try:
        return float(os.environ["PITH_TIMEOUT"])
    except (KeyError, ValueError):  # libpith tells what is wrong with it
        return None


def _make(options: Any, start: bytes) -> Any:
    return _backend.make_process_group(
        dist.PrefixStore(f"pith/{start.decode()}", options.store),
        options.group_rank,
        options.group_size,
        options.timeout.total_seconds(),
        _timeout_setting(),
    )


def _create(options: Any, _pg_options: Any) -> Any:
    """Meets the other ranks under the name that rank 0 gives this start of the group.

    torchrun keeps its store when it starts the ranks anew, so the store may still have what earlier
    ranks wrote. Rank 0 is not reached under an old name, and writes another one.
    """
    store = options.store
    if options.group_rank == 0:
        start = secrets.token_hex(8).encode()
        store.set(START, start)
        return _make(options, start)
    start = store.get(START)
    while True:
        try:
            return _make(options, start)
        except dist.DistBackendError as error:
            if UNREACHABLE not in str(error):
                raise
            start = _next_start(store, start, error)


def _next_start(store: dist.Store, old: bytes, error: Exception) -> bytes:
    deadline = time.monotonic() + store.timeout.total_seconds()
    while (start := bytes(store.get(START))) == old:
        if time.monotonic() > deadline:
            raise error
        time.sleep(0.05)
    return start


def register() -> None:
    if not hasattr(dist.Backend, "PITH"):
        dist.Backend.register_backend("pith", _create, extended_api=True, devices=["cpu", "cuda"])
        atexit.register(_end_groups)


def _end_groups() -> None:
    """Ends groups that the program did not destroy, while callbacks of their calls can still run.

    A thread that needs the interpreter while it is taken down ends the process with SIGABRT.
    """
    for group in list(c10d._world.pg_map):
        try:
            backend = backend_of(group, CPU)
        except (RuntimeError, ValueError):  # another backend's
            continue
        backend.shutdown()


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
    return list(backend_of(group, CPU).failed())
