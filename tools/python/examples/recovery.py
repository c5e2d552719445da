"""Goes on with the ranks that are left when one dies: the loop of a program that trains for days.

    mpirun --enable-recovery -n 3 python recovery.py [RANK_THAT_DIES]
"""

import os
import signal
import sys

import numpy as np

import pith

STEPS = 20


def step_of(comm: pith.Communicator, step: int, state: np.ndarray) -> np.ndarray:
    """One step: a new state, on all ranks the same. The old one stays as it is."""
    gradient = comm.all_reduce(np.full(state.shape, 1.0 + step), "avg")
    new: np.ndarray = state + gradient
    return new


def recovered(
    comm: pith.Communicator, step: int, state: np.ndarray
) -> tuple[pith.Communicator, int, np.ndarray]:
    """The ranks that are left, and what all of them go on with. Others may die meanwhile."""
    while True:
        smaller = comm.shrink()
        comm.abort()
        comm = smaller
        try:
            # A rank may have finished a step that another has not: all go on from the earliest.
            steps = comm.all_gather(np.array([step]))
            source = int(steps.argmin())
            return comm, int(steps.min()), comm.broadcast(state, root=source)
        except pith.RemoteError as error:
            print(f"rank {comm.rank}: while recovering: {error}", flush=True)


def main() -> None:
    victim = int(sys.argv[1]) if len(sys.argv) > 1 else -1
    comm = pith.init()
    name = comm.rank  # as the job was started; a smaller communicator numbers its ranks anew
    state = np.zeros(4)
    step = 0
    while step < STEPS:
        if step == STEPS // 2 and name == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            state = step_of(comm, step, state)
            step += 1
        except pith.RemoteError as error:
            print(f"rank {name}: step {step}: {error}", flush=True)
            comm, step, state = recovered(comm, step, state)
    print(f"rank {name}: {comm.size} ranks have finished, state {state[0]:g}", flush=True)
    comm.finalize()


if __name__ == "__main__":
    main()
