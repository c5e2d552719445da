"""Ranks in threads of this process: what programs of others call of torch.distributed and of
mpi4py, and Pith's ranks."""
import queue
import threading
import types

import numpy as np
import torch

import pith


def on_threads(ranks, call):
    """call(rank) of all ranks at once; their results. The first error is raised."""
    results, errors = [None] * ranks, []

    def run(rank):
        try:
            results[rank] = call(rank)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class PithRanks:
    """Calls of all ranks, each of a group of tensors that lie behind each other in a vector."""

    def __init__(self, ranks, spec, sizes=None):
        self.comms = pith.init_all(ranks)
        self.ends = np.cumsum(sizes or [])[:-1]
        self.compressors = [[pith.Compressor(spec) for _ in sizes or [0]] for _ in self.comms]

    def __call__(self, vectors):
        """Each rank's mean."""
        def call(rank):
            result = np.empty_like(vectors[rank])
            parts = zip(*(np.split(one, self.ends) for one in (vectors[rank], result)))
            with pith.group():
                for (part, out), compressor in zip(parts, self.compressors[rank]):
                    self.comms[rank].all_reduce(part, "avg", out=out, compressor=compressor)
            return result
        return on_threads(len(vectors), call)

    def residuals(self):
        return [np.concatenate([one.residual() for one in mine]) for mine in self.compressors]

    def finalize(self):
        for comm in self.comms:
            comm.finalize()


class World:
    """torch.distributed for threads that have called `enter`. Sums are in rank order."""
    ReduceOp = types.SimpleNamespace(SUM="sum")

    def __init__(self, ranks):
        self.ranks, self.own = ranks, threading.local()
        self.barrier, self.slots = threading.Barrier(ranks, timeout=60), [None] * ranks

    def enter(self, rank):
        self.own.rank = rank

    def is_available(self):
        return True

    def get_rank(self):
        return self.own.rank

    def get_world_size(self):
        return self.ranks

    def share(self, mine):
        """What every rank has brought."""
        self.slots[self.own.rank] = mine
        self.barrier.wait()
        all_of_them = list(self.slots)
        self.barrier.wait()
        return all_of_them

    def done(self):
        return types.SimpleNamespace(wait=lambda: None)

    def all_gather(self, into, mine, async_op=True):
        for target, one in zip(into, self.share(mine.clone())):
            target.copy_(one)
        return self.done()

    def all_reduce(self, mine, op=None, async_op=True):
        total = torch.zeros_like(mine)
        for one in self.share(mine.clone()):
            total += one
        mine.copy_(total)
        return self.done()

    def broadcast(self, mine, root, async_op=True):
        mine.copy_(self.share(mine.clone())[root])
        return self.done()


class MpiRank:
    """mpi4py's communicator for one of the threads: what gtopk_sparse_allreduce calls of it."""

    def __init__(self, world, rank):
        self.world, self.rank, self.size = world, rank, world.ranks
        world.enter(rank)
        self.boxes = world.share({other: queue.Queue() for other in range(self.size)})

    def Send(self, message, dest):  # noqa: N802
        self.boxes[dest][self.rank].put(np.array(message[0]))

    def Recv(self, message, source):  # noqa: N802
        message[0][:] = self.boxes[self.rank][source].get(timeout=60)

    def Barrier(self):  # noqa: N802
        self.world.barrier.wait()

    def Bcast(self, array, root):  # noqa: N802
        array[:] = self.world.share(np.array(array))[root]
