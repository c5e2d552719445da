"""Ranks for tests of the Python package: functions of a test file that run once per rank, in
processes of their own, with the launcher's variables."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence

import pytest

LIMIT_S = 60


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def environment_of(rank: int, ranks: int, port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PITH_")}
    return {**kept, "PITH_RANK": str(rank), "PITH_SIZE": str(ranks),
            "PITH_ROOT": f"127.0.0.1:{port}", "PITH_TIMEOUT": "30"}


class Ranks:
    """Processes that run the same script."""

    def __init__(self, command: Sequence[str], ranks: int, folder: pathlib.Path,
                 **variables: str) -> None:
        port = free_port()
        self.began = time.monotonic()
        self.processes = [
            subprocess.Popen([*command], env={**environment_of(rank, ranks, port), **variables},
                             cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, start_new_session=True)
            for rank in range(ranks)
        ]

    def signal(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)

    def wait_for(self, rank: int, text: str) -> None:
        """Reads the rank's output until a line is this text."""
        stream = self.processes[rank].stdout
        assert stream
        for line in stream:
            if line.strip() == text:
                return
        raise AssertionError(f"rank {rank} ended without {text!r}: {self.end()}")

    def end(self) -> list[tuple[int, str, str]]:
        """Status, output and errors of each rank."""
        ends = []
        for process in self.processes:
            left = max(1.0, LIMIT_S - (time.monotonic() - self.began))
            try:
                out, err = process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += f"\nkilled after {LIMIT_S} s"
            ends.append((process.returncode, out, err))
        return ends

    def succeed(self) -> list[str]:
        """The output of each rank; all have ended well."""
        ends = self.end()
        for rank, (status, out, err) in enumerate(ends):
            assert status == 0, f"rank {rank} ended with {status}:\n{out}\n{err}"
        return [out for _, out, _ in ends]


PRELUDE = """
import os, signal, sys, time, threading
import numpy as np
import pith
comm = pith.init()
rank, size = comm.rank, comm.size
"""


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Callable[..., Ranks]:
    """start(N, script): processes of which each has joined `comm`, and runs the script."""

    def begin(ranks: int, script: str, prelude: str = PRELUDE, **variables: str) -> Ranks:
        file = tmp_path / "ranks.py"
        file.write_text(prelude + textwrap.dedent(script), encoding="utf-8")
        return Ranks([sys.executable, str(file)], ranks, tmp_path, **variables)

    return begin


@pytest.fixture
def run(start: Callable[..., Ranks]) -> Callable[..., list[str]]:
    """As start; the ranks must end well. Returns their outputs."""

    def begin_and_end(ranks: int, script: str, **variables: str) -> list[str]:
        return start(ranks, script, **variables).succeed()

    return begin_and_end
