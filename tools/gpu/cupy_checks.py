"""Checks of CuPy over NCCL's symbols, run by clients.py."""
import contextlib
import multiprocessing
import os
import pickle
import time

import cupy
from cupy.cuda import nccl


@contextlib.contextmanager
def joined(_world):
    yield


def shared_id(world):
    """Of rank 0, by a file: bytes since CuPy 14, numbers before."""
    path = world.shared_path("id")
    if world.rank == 0:
        with open(path + ".new", "wb") as file:
            pickle.dump(nccl.get_unique_id(), file)
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.05)
    with open(path, "rb") as file:
        return pickle.load(file)


def sums(world):
    comm = nccl.NcclCommunicator(world.size, shared_id(world), world.rank)
    assert comm.rank_id() == world.rank and comm.size() == world.size
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        values = cupy.arange(10000, dtype=cupy.float32) + world.rank
        comm.allReduce(values.data.ptr, values.data.ptr, values.size, nccl.NCCL_FLOAT32,
                       nccl.NCCL_SUM, stream.ptr)
        everyone = cupy.empty(world.size * 10, dtype=cupy.int64)
        own = cupy.full(10, world.rank, dtype=cupy.int64)
        comm.allGather(own.data.ptr, everyone.data.ptr, 10, nccl.NCCL_INT64, stream.ptr)
    stream.synchronize()
    expected = world.size * cupy.arange(10000) + sum(range(world.size))
    assert bool((values == expected).all())
    assert everyone.tolist() == [rank for rank in range(world.size) for _ in range(10)]
    comm.check_async_error()
    comm.destroy()


def alone(_world):
    """As CuPy's own tests do it."""
    for end in ("destroy", "abort"):
        comm = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
        assert comm.rank_id() == 0
        comm.check_async_error()
        getattr(comm, end)()
    both = nccl.NcclCommunicator.initAll(1)
    assert len(both) == 1 and both[0].rank_id() == 0 and both[0].device_id() == 0
    both[0].destroy()


def backend(world):
    """cupyx.distributed, whose calls take arrays."""
    from cupyx import distributed
    multiprocessing.set_start_method("fork")  # its store cannot be handed on otherwise
    rank, size = world.rank, world.size
    comm = distributed.init_process_group(size, rank, host="127.0.0.1", port=world.port)
    own = cupy.arange(12, dtype=cupy.float64) + rank
    total = cupy.empty_like(own)
    comm.all_reduce(own, total)
    assert total.tolist() == (size * cupy.arange(12) + sum(range(size))).tolist()
    comm.broadcast(own, root=size - 1)
    assert own.tolist() == (cupy.arange(12) + size - 1).tolist()
    found = cupy.empty(5, dtype=cupy.int32)
    comm.send_recv(cupy.full(5, rank, dtype=cupy.int32), found, size - 1 - rank)
    assert found.tolist() == [size - 1 - rank] * 5
    blocks = cupy.full((size, 3), rank, dtype=cupy.float32) + cupy.arange(size)[:, None]
    blocks, got = blocks.astype(cupy.float32), cupy.empty((size, 3), dtype=cupy.float32)
    comm.all_to_all(blocks, got)
    assert got.tolist() == [[float(other + rank)] * 3 for other in range(size)]
    comm.barrier()
