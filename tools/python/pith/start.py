"""How a program's first communicator is made."""

from __future__ import annotations

import os

from pith._core import Communicator, init_from_environment, unique_id
from pith.errors import InvalidUsage


def init() -> Communicator:
    """The communicator of all ranks that the launcher (mpirun, srun, torchrun, or PITH_RANK,
    PITH_SIZE and PITH_ROOT) has started; without a launcher, that of one rank. Collective: every
    call makes a new communicator."""
    try:
        return init_from_environment()
    except InvalidUsage as error:
        # A launcher that has set some of its variables is meant, and its error is told.
        text = str(error)
        told_in_part = ": not set" in text or "PITH_LAUNCHER" in os.environ
        if told_in_part or "no launcher has said which rank this is" not in text:
            raise
    return Communicator(unique_id(), nranks=1, rank=0)
