"""Goes on with as many ranks as before when one dies: a new process takes its place.

    mpirun --enable-recovery -n 3 python rejoin.py [RANK_THAT_DIES]

Here rank 0 of the survivors starts the new process on its own host. In a cluster the scheduler
does, and the id goes to it by a file or a service that only the job can read.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np

import pith

STEPS = 20
JOIN = "--join"


def start_newcomer(unique_id: bytes, size: int, rank: int) -> subprocess.Popen[bytes]:
    """A process that joins. The id is a secret, so it goes through a pipe."""
    command = [sys.executable, __file__, JOIN, str(size), str(rank)]
    newcomer = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert newcomer.stdin
    newcomer.stdin.write(unique_id)
    newcomer.stdin.close()
    return newcomer


class Training:
    """What a rank holds: the communicator, the state that is trained, and its step."""

    def __init__(self, comm: pith.Communicator, *, step: int = 0) -> None:
        self.comm = comm
        self.size = comm.size
        self.step = step
        self.state = np.zeros(4)
        self.newcomers: list[subprocess.Popen[bytes]] = []

    def take_step(self) -> None:
        gradient = self.comm.all_reduce(np.full(self.state.shape, 1.0 + self.step), "avg")
        self.state = self.state + gradient
        self.step += 1

    def make_whole(self) -> None:
        """Replaces the dead. Others may die meanwhile: then once more."""
        while True:
            survivors = self.comm.shrink()
            self.comm.abort()
            self.comm = survivors
            unique_id = None
            try:
                if survivors.rank == 0:
                    unique_id = survivors.unique_id()
                    self.newcomers += [
                        start_newcomer(unique_id, self.size, rank)
                        for rank in range(survivors.size, self.size)
                    ]
                self.comm = survivors.grow(self.size, unique_id)
                survivors.finalize()
                return self.agree()
            except pith.RemoteError as error:
                print(f"rank {self.comm.rank}: while recovering: {error}", flush=True)

    def agree(self) -> None:
        """All go on from the earliest step that a rank has reached."""
        steps = self.comm.all_gather(np.array([self.step]))
        self.step = int(steps.min())
        self.state = self.comm.broadcast(self.state, root=int(steps.argmin()))

    def run(self, victim: int) -> None:
        while self.step < STEPS:
            if self.step == STEPS // 2 and self.comm.rank == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                self.take_step()
            except pith.RemoteError as error:
                print(f"rank {self.comm.rank}: step {self.step}: {error}", flush=True)
                self.make_whole()
                victim = -1
        rank, size = self.comm.rank, self.comm.size
        print(f"rank {rank}: {size} ranks have finished, state {self.state[0]:g}", flush=True)
        self.comm.finalize()
        for newcomer in self.newcomers:
            newcomer.wait()


def main() -> None:
    if sys.argv[1:2] == [JOIN]:
        size, rank = int(sys.argv[2]), int(sys.argv[3])
        comm = pith.join(sys.stdin.buffer.read(), size, rank)
        training = Training(comm, step=STEPS)  # later than all: it begins with their state
        training.agree()
        training.run(-1)
    else:
        victim = int(sys.argv[1]) if len(sys.argv) > 1 else -1
        Training(pith.init()).run(victim)


if __name__ == "__main__":
    main()
