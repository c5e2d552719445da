"""Ranks that die or make other calls, and waits that a signal ends."""

import signal
import time

import pytest


def test_a_rank_dies(start):
    """The others get an exception that names it within a second, and go on without it."""
    ranks = start(3, """
comm.barrier()
print("ready", flush=True)
if rank == 1:
    time.sleep(60)
try:
    while True: comm.all_reduce(np.ones(10))
except pith.RemoteError as error:
    print(time.time(), flush=True)
    assert "rank 1" in str(error) and error.failed == (1,) and error.code == 6, error
assert comm.failed == (1,)
try:
    comm.check()
    raise SystemExit("no error")
except pith.RemoteError:
    pass
with comm.shrink() as smaller:
    assert (smaller.all_reduce(np.ones(1)) == 2).all() and smaller.rank == (0 if rank == 0 else 1)
    assert comm.last_completed >= 1
    comm.abort()
""")
    for rank in range(3):
        ranks.wait_for(rank, "ready")
    ranks.signal(1, signal.SIGKILL)
    died = time.time()
    ends = ranks.end()
    for rank in (0, 2):
        status, out, err = ends[rank]
        assert status == 0, err
        assert float(out) - died < 2, "late"


def test_a_request_of_a_rank_that_dies(start):
    ranks = start(2, """
comm.barrier()
print("ready", flush=True)
if rank == 1:
    time.sleep(60)
work = comm.all_reduce(np.ones(10), async_op=True)
with pith.group(async_op=True) as group:
    comm.all_gather(np.ones(3))
for one in (work, group):
    for _ in range(2):
        try:
            one.wait()
            raise SystemExit("no error")
        except pith.RemoteError as error:
            assert error.failed == (1,), error
    assert one.done()
try:
    work.result
    raise SystemExit("no error")
except pith.RemoteError:
    pass
""")
    for rank in range(2):
        ranks.wait_for(rank, "ready")
    ranks.signal(1, signal.SIGKILL)
    status, _, err = ranks.end()[0]
    assert status == 0, err


def test_calls_that_differ(run):
    run(2, """
try:
    comm.all_reduce(np.ones(3 + rank))
    raise SystemExit("no error")
except pith.InvalidUsage as error:
    assert "3" in str(error) and "4" in str(error), error
""")


WAITS = {
    "all_reduce": "comm.all_reduce(np.ones(4))",
    "large": "comm.all_reduce(np.ones(4 << 20))",
    "recv": "comm.recv(np.ones(4), 1)",
    "barrier": "comm.barrier()",
    "request": "comm.all_reduce(np.ones(4), async_op=True).wait()",
    "timeout": "comm.all_reduce(np.ones(4), async_op=True).wait(timeout=50)",
    "group": "with pith.group():\\n    comm.barrier()\\n    comm.all_reduce(np.ones(3))",
    "groups": "with pith.group():\\n    comm.barrier()\\n    other.barrier()",
    "compressed": "comm.all_reduce(np.ones(999, 'f4'), compressor=pith.Compressor('topk'))",
    "finalize": "work = comm.all_reduce(np.ones(4), async_op=True)\\ncomm.finalize()",
    "split": "comm.split(0)",
    "init": "pith.Communicator(pith.unique_id(), 2, 0)",
    "launcher": "pith.init()",
    "grow": "comm.grow(3, comm.unique_id())",
}


@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c(start, name):
    """Ctrl-C ends a wait, and the other ranks hear of it."""
    ranks = start(2, f"""
other = comm.split(0)
if rank == 0:
    comm.barrier()
    print("waits", flush=True)
    try:
        # Not of a string: then Python would end as by an unhandled Ctrl-C.
        exec(compile("{WAITS[name]}", "wait", "exec"))
        raise SystemExit("no wait")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    if "{name}" == "timeout":
        comm.abort()
else:
    comm.barrier()
    print("past", flush=True)
    time.sleep(0.8)
    while "{name}" not in ("init", "launcher", "split", "finalize"):
        try:
            comm.check()
        except pith.RemoteError as error:
            assert "rank 0" in str(error), error
            break
        time.sleep(0.01)
    time.sleep(1)
""")
    ranks.wait_for(0, "waits")
    ranks.wait_for(1, "past")
    time.sleep(0.6)
    begin = time.monotonic()
    ranks.signal(0, signal.SIGINT)
    ranks.wait_for(0, "interrupted")
    assert time.monotonic() - begin < 3, "late"
    for status, _, err in ranks.end():
        assert status == 0, err


def test_handlers_that_do_not_raise(run):
    """They run during the wait, which goes on."""
    run(2, """
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
if rank == 0:
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
    comm.barrier()
    assert len(seen) >= 2, seen
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert (comm.all_reduce(np.ones(1)) == 2).all()
else:
    time.sleep(1.5)
    comm.barrier()
    comm.all_reduce(np.ones(1))
""")


def test_handlers_that_make_calls(run):
    """On another communicator, or the end of the one that waits."""
    run(2, """
other, third = comm.split(0), comm.split(0)
if rank == 0:
    got = []
    signal.signal(signal.SIGALRM, lambda *_: got.append(other.all_reduce(np.ones(2))))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    comm.barrier()
    assert (got[0] == 2).all()
    signal.signal(signal.SIGALRM, lambda *_: third.abort())
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        third.barrier()
        raise SystemExit("no error")
    except pith.RemoteError:
        pass
    assert repr(third).endswith("ended>")
    signal.signal(signal.SIGALRM, lambda *_: comm.barrier())
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        comm.barrier()
        raise SystemExit("no error")
    except pith.InvalidUsage as error:
        assert "this thread is in a call" in str(error), error
else:
    other.all_reduce(np.ones(2))
    comm.barrier()
    try:
        time.sleep(1)
        third.barrier()
    except pith.RemoteError as error:
        assert "rank 0" in str(error)
    try:
        time.sleep(1)
        comm.barrier()
    except pith.RemoteError:
        pass
""")


def test_handlers_that_wait_for_the_same_request(run):
    """Are refused while the thread itself waits in the library, and wait where it polls."""
    run(2, """
if rank == 1:
    for _ in range(3):
        time.sleep(1)
        comm.all_reduce(np.ones(2))
    sys.exit()
def handler(*_):
    try:
        told.append(work.wait(inner))
    except (pith.InvalidUsage, TimeoutError) as error:
        told.append(error)
signal.signal(signal.SIGALRM, handler)
for outer, inner in ((None, None), (None, 0.1), (50, None)):
    told = []
    work = comm.all_reduce(np.ones(2), async_op=True)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    assert (work.wait(outer) == 2).all()
    if outer is None:
        assert isinstance(told[0], pith.InvalidUsage), told
        assert "this thread waits for the request" in str(told[0]), told
    else:
        assert (told[0] == 2).all(), told
""")


def test_abort_by_another_thread(run):
    run(2, """
if rank == 0:
    threading.Timer(0.4, comm.abort).start()
    begin = time.monotonic()
    try:
        comm.barrier()
        raise SystemExit("no error")
    except pith.RemoteError as error:
        assert error.failed == (), error.failed
    assert time.monotonic() - begin < 5
else:
    time.sleep(1.5)
    try:
        comm.barrier()
        raise SystemExit("no error")
    except pith.RemoteError as error:
        assert "rank 0" in str(error), error
""")
