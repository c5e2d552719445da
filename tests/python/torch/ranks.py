"""Runs a function in several processes, each a rank of a process group."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

import pith.torch  # noqa: F401  registers the backend

FORK = multiprocessing.get_context("fork")


class RankFailed(AssertionError):
    pass


def _rank_main(
    function: Callable[..., Any],
    rank: int,
    size: int,
    folder: str,
    backend: str,
    timeout: float,
    args: tuple[Any, ...],
    pipe: Connection,
) -> None:
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(1.5 * timeout, exit=True)  # a rank that hangs shows where
    try:
        dist.init_process_group(
            backend,
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
        )
        answer = (True, function(rank, size, *args))
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:
        answer = (False, traceback.format_exc())
    pipe.send_bytes(pickle.dumps(answer))  # send() would pass tensors in memory of this process
    pipe.close()


def run_ranks(
    function: Callable[..., Any],
    size: int,
    *args: Any,
    backend: str = "pith",
    timeout: float = 60,
    dying: tuple[int, ...] = (),
    settings: dict[str, str] | None = None,
) -> list[Any]:
    """The results of function(rank, size, *args) by rank; None for ranks that are to die."""
    before = dict(os.environ)
    os.environ.update(settings or {})
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _run(function, size, args, folder, backend, timeout, dying)
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run(
    function: Callable[..., Any],
    size: int,
    args: tuple[Any, ...],
    folder: str,
    backend: str,
    timeout: float,
    dying: tuple[int, ...],
) -> list[Any]:
    processes = []
    pipes: dict[Connection, int] = {}
    for rank in range(size):
        ours, theirs = FORK.Pipe(duplex=False)
        process = FORK.Process(
            target=_rank_main, args=(function, rank, size, folder, backend, timeout, args, theirs)
        )
        process.start()
        theirs.close()
        processes.append(process)
        pipes[ours] = rank
    results: list[Any] = [None] * size
    failures = []
    while pipes:
        for pipe in wait(list(pipes), timeout=2 * timeout) or list(pipes):
            rank = pipes.pop(pipe)  # type: ignore[arg-type]
            try:
                late = (False, "no answer in time")
                good, value = pickle.loads(pipe.recv_bytes()) if pipe.poll() else late
            except EOFError:
                good, value = rank in dying, "the process died" if rank not in dying else None
            if good:
                results[rank] = value
            else:
                failures.append(f"rank {rank}: {value}")
    for process in processes:
        process.join(10)
        if process.is_alive():
            process.kill()
    if failures:
        raise RankFailed("\n".join(failures))
    return results
