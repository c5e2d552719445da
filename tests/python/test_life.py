"""Communicators: how they begin and end, in threads, forks, and at the end of the interpreter."""

import os
import subprocess
import sys


def alone(script, **variables):
    """A process that no launcher has started."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_PRELOAD")
            if name in os.environ}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60, check=False, env={**kept, **variables})


def test_without_a_launcher():
    done = alone("""
import pith
with pith.init() as comm:
    assert (comm.rank, comm.size) == (0, 1)
    assert bytes(comm.all_gather(b"ab")) == b"ab"
""")
    assert done.returncode == 0, done.stderr


def test_a_launcher_that_told_half():
    done = alone("import pith; pith.init()", RANK="0", WORLD_SIZE="2")
    assert done.returncode == 1 and "InvalidUsage" in done.stderr, done.stderr
    assert "MASTER_ADDR" in done.stderr, done.stderr


def test_by_unique_id(run):
    run(2, """
made = pith.unique_id()
assert isinstance(made, bytes) and len(made) == 128
shared = comm.broadcast(np.frombuffer(bytearray(made), "uint8"))
other = pith.Communicator(shared.tobytes(), nranks=size, rank=size - 1 - rank)
assert other.rank == size - 1 - rank and repr(other) == f"<pith.Communicator rank {1 - rank} of 2>"
assert (other.broadcast(np.full(2, other.rank)) == 0).all()
""")


def test_ranks_in_threads():
    import numpy as np
    import pith
    import threading

    comms = pith.init_all(3)
    outs = [None] * 3

    def body(rank):
        outs[rank] = comms[rank].all_reduce(np.full(4, rank + 1.0))

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((out == 6).all() for out in outs)
    with pith.group():
        outs = [comm.all_reduce(np.ones(2)) for comm in comms]
    assert all((out == 3).all() for out in outs)


def test_split(run):
    run(3, """
half = comm.split(rank % 2, key=-rank)
assert half.size == (2 if rank % 2 == 0 else 1)
assert half.rank == (1 if rank == 0 else 0)
none = comm.split(None)
assert none is None
comm.finalize()
assert (half.all_reduce(np.ones(1)) == half.size).all()  # outlives its parent
""")


def test_ends(run):
    run(2, """
def refused(call):
    try:
        call()
    except pith.InvalidUsage as error:
        assert "finalized or aborted" in str(error), error
    else:
        raise SystemExit("not refused")
with comm.split(0) as half:
    work = half.all_reduce(np.ones(1000), async_op=True)
assert work.done() and (work.result == 2).all()  # finalize has waited
half.finalize()
half.abort()
refused(lambda: half.barrier())
refused(lambda: half.failed)
refused(lambda: half.check())
refused(lambda: half.split(0))
assert repr(half).endswith("ended>")
# A block that raises ends the others' waits, too.
other = comm.split(0)
try:
    with other:
        if rank == 0:
            time.sleep(0.3)
            raise KeyError("a fault of the program")
        other.barrier()
        raise SystemExit("no error")
except KeyError:
    assert rank == 0
except pith.RemoteError as error:
    assert rank == 1 and "rank 0" in str(error), error
comm.barrier()
# Dropped without an end, in the middle of things.
for _ in range(5):
    half = comm.split(0)
    half.all_reduce(np.ones(10), async_op=True)
    del half
comm.barrier()
assert comm.check() is None and comm.failed == ()
""")


def test_one_thread_at_a_time(run):
    run(2, """
if rank == 0:
    def late():
        time.sleep(0.5)
        try:
            comm.barrier()
            told.append("nothing")
        except pith.InvalidUsage as error:
            told.append(str(error))
    told = []
    thread = threading.Thread(target=late)
    thread.start()
    comm.barrier()
    thread.join()
    assert "another thread" in told[0], told
else:
    time.sleep(1.5)
    comm.barrier()
# Different communicators by different threads, while others compute.
halves = [comm.split(0) for _ in range(3)]
wrong = []
def drive(one, n):
    for i in range(200):
        if not (one.all_reduce(np.full(50, i)) == 2 * i).all(): wrong.append(n)
threads = [threading.Thread(target=drive, args=(one, n)) for n, one in enumerate(halves)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong
""")


def test_the_gil_is_released(run):
    run(2, """
if rank == 0:
    counted = 0
    def count():
        global counted
        while not done: counted += 1; time.sleep(0.001)
    done = False
    thread = threading.Thread(target=count)
    thread.start()
    comm.barrier()
    done = True
    thread.join()
    assert counted > 50, counted
else:
    time.sleep(1)
    comm.barrier()
""")


def test_finalizers_that_begin_calls(run):
    """What a dropped request has kept may run any code when it is freed: also code that begins and
    drops more requests."""
    run(2, """
freed = []
class Array(np.ndarray):
    def __del__(self):
        freed.append(1)
        (own,) = pith.init_all(1)
        for _ in range(3): own.all_reduce(np.ones(3), async_op=True)
(alone,) = pith.init_all(1)
if rank == 1: time.sleep(0.5)  # so that those of rank 0 are in flight together
for _ in range(40): comm.all_reduce(np.ones(3).view(Array), async_op=True)
comm.barrier()
for _ in range(1000):  # each frees what has ended
    alone.all_reduce(np.ones(3), async_op=True)
    if len(freed) == 40: break
    time.sleep(0.01)
assert len(freed) == 40, len(freed)
""")


def test_threads_that_drop_the_last_requests():
    """Each communicator ends with its dropped request, in whichever thread frees that."""
    done = alone("""
import threading
import numpy as np
import pith
ended = []
def body():
    for _ in range(100):
        (one,) = pith.init_all(1)
        one.all_reduce(np.ones(3), async_op=True)
        del one
    ended.append(1)
threads = [threading.Thread(target=body) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(ended) == 4
""")
    assert done.returncode == 0, done.stderr


def test_the_first_calls_of_two_threads():
    """Meet while the module looks for pith.arrays, which lets the GIL go."""
    done = alone("""
import builtins
import threading
import time
import numpy as np
import pith
find = builtins.__import__
def slowly(name, *rest, **named):
    if name == "pith.arrays": time.sleep(0.3)
    return find(name, *rest, **named)
builtins.__import__ = slowly
sums = []
def body(comm): sums.append(comm.all_reduce(np.ones(2)).tolist())
threads = [threading.Thread(target=body, args=(comm,)) for comm in pith.init_all(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sums == [[2, 2]] * 2, sums
""")
    assert done.returncode == 0, done.stderr


def test_fork(run):
    run(2, """
shared = pith.empty(4)
k = pith.Compressor("topk")
work = comm.all_reduce(np.ones(4), async_op=True)
comm.barrier()
child = os.fork()
if child == 0:
    status = 1
    try:
        for call in (comm.barrier, lambda: comm.failed, work.wait, work.done, comm.finalize):
            try:
                call()
                os._exit(2)
            except pith.InvalidUsage as error:
                if "forked" not in str(error): os._exit(3)
        comm.abort()
        with pith.Communicator(pith.unique_id(), 1, 0) as own:
            assert (own.all_reduce(np.ones(3)) == 1).all()
        del shared, k, work, comm
        import gc
        gc.collect()
        status = 0
    finally:
        os._exit(status)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert (work.wait() == 2).all()
assert (comm.all_reduce(shared * 0 + 1) == 2).all()
""")


def test_multiprocessing(run):
    run(2, """
import multiprocessing
def body(queue): queue.put(float(np.ones(3).sum()))
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=body, args=(queue,))
process.start()
assert queue.get(timeout=30) == 3
process.join()
assert process.exitcode == 0
comm.barrier()
""")


def test_the_end_of_the_interpreter(run):
    """With requests in flight, open communicators, threads in a call, and objects in cycles: the
    process ends, in order, and the others get what was sent."""
    out = run(2, """
import atexit
half = comm.split(0)
class Cycle: pass
cycle = Cycle()
cycle.me, cycle.comm, cycle.memory = cycle, half, pith.empty(10)
late = comm.all_reduce(np.ones(1000), async_op=True)
comm.all_reduce(np.ones(1000), async_op=True)
if rank == 0:
    never = half.all_reduce(np.ones(10), async_op=True)
    stuck = comm.split(0)
    threading.Thread(target=stuck.barrier, daemon=True).start()
    time.sleep(0.3)
else:
    comm.split(0)
atexit.register(lambda: print("the end"))
""")
    assert out == ["the end\n"] * 2
