"""Processes that join a communicator, and what is refused."""

import pathlib

NO_COMM = """
import os, sys, time
import numpy as np
import pith
rank = int(os.environ["PITH_RANK"])
def refused(error, *words):
    def call(function, *arguments, **named):
        try:
            function(*arguments, **named)
        except error as raised:
            assert all(word in str(raised) for word in words), raised
        else:
            raise SystemExit("no error")
    return call
def told(name):
    while not os.path.exists(name):
        time.sleep(0.01)
    with open(name, "rb") as file:
        return file.read()
def tell(name, content):
    with open(name + ".new", "wb") as file:
        file.write(content)
    os.rename(name + ".new", name)
"""


def test_ranks_join(start, tmp_path: pathlib.Path):
    start(4, """
if rank == 0:
    tell("first", pith.unique_id())
if rank < 2:
    comm = pith.Communicator(told("first"), 2, rank)
    if rank == 1:
        tell("growth", comm.unique_id())
    grown = comm.grow(4, told("growth") if rank == 1 else None)
    assert (comm.all_reduce(np.ones(3)) == 2).all()
    comm.finalize()
else:
    grown = pith.join(told("growth"), nranks=4, rank=rank)
assert (grown.rank, grown.size) == (rank, 4), grown
assert (grown.all_reduce(np.full(3, rank)) == 6).all()
grown.finalize()
""", prelude=NO_COMM).succeed()


def test_what_is_refused(start):
    start(1, """
comm = pith.Communicator(pith.unique_id(), 1, 0)
growth = comm.unique_id()
assert len(growth) == 128
refused(pith.InvalidArgument, "nranks is 1")(comm.grow, 1, growth)
refused(pith.InvalidArgument, "unique_id has 3 bytes", "Communicator.unique_id()")(
    comm.grow, 2, b"abc")
refused(pith.InvalidArgument, "unique_id has 3 bytes", "Communicator.unique_id()")(
    pith.join, b"abc", 2, 1)
refused(pith.InvalidArgument, "pithCommGetUniqueId")(pith.join, pith.unique_id(), 2, 1)
refused(pith.InvalidArgument, "rank is 0", "1 to 1")(pith.join, growth, 2, 0)
refused(pith.InvalidArgument, "pithGetUniqueId")(pith.Communicator, growth, 2, 1)
refused(pith.InvalidUsage, "no rank gives an id")(comm.grow, 2)
with pith.group():
    refused(pith.InvalidUsage, "a group is open")(comm.grow, 2, growth)
    refused(pith.InvalidUsage, "a group is open")(pith.join, growth, 2, 1)
comm.finalize()
refused(pith.InvalidUsage)(comm.unique_id)
refused(pith.InvalidUsage)(comm.grow, 2, growth)
""", prelude=NO_COMM).succeed()


def test_a_rank_that_does_not_come(start):
    start(1, """
comm = pith.Communicator(pith.unique_id(), 1, 0)
refused(pith.RemoteError, "rank 1 did not join")(comm.grow, 2, comm.unique_id())
assert (comm.all_reduce(np.ones(1)) == 1).all()
comm.finalize()
""", prelude=NO_COMM, PITH_INIT_TIMEOUT="1").succeed()
