"""Every collective against NumPy, by every type, in every way to call."""

import pytest

RANKS = (1, 2, 3)

# Arrays of the ranks: `mine(r)` is that of rank r, so that each rank knows what all have.
MINE = """
TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]

def mine(r, dtype="float64", shape=(6, 2)):
    return (np.arange(np.prod(shape)).reshape(shape) % 5 + r + 1).astype(dtype)

def of_all(dtype="float64", shape=(6, 2)):
    return np.stack([mine(r, dtype, shape) for r in range(size)])

def same(got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape, (got, expected)
    assert (got == expected).all(), (got, expected)
"""


@pytest.mark.parametrize("ranks", RANKS)
def test_results(run, ranks):
    run(ranks, MINE + """
part = slice(6 // size * rank, 6 // size * (rank + 1))
for dtype in TYPES:
    x, every = mine(rank, dtype), of_all(dtype)
    for op, of in (("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min)):
        same(comm.all_reduce(x, op), of(every, axis=0).astype(dtype))
    if x.dtype.kind in "iu":
        for op, of in (("band", np.bitwise_and), ("bor", np.bitwise_or), ("bxor", np.bitwise_xor),
                       ("land", np.logical_and), ("lor", np.logical_or), ("lxor", np.logical_xor)):
            some = (every - 1) * (every % 3 > 0)  # also 0
            same(comm.all_reduce(some[rank].copy(), op), of.reduce(some, axis=0).astype(dtype))
            last = comm.reduce(some[rank].copy(), size - 1, op)
            assert rank < size - 1 or (last == of.reduce(some, axis=0)).all()
    sums = every.cumsum(axis=0).astype(dtype)
    same(comm.scan(x), sums[rank])
    before_own = comm.exscan(x)
    assert before_own is None if rank == 0 else (before_own == sums[rank - 1]).all()
    most = comm.scan(x, "max", out=np.empty_like(x))
    same(most, every[:rank + 1].max(axis=0))
    same(comm.reduce_scatter(x), every.sum(axis=0)[part].astype(dtype))
    same(comm.all_gather(x), every)
    same(comm.all_to_all(x), np.concatenate([mine(r, dtype)[part] for r in range(size)]))
    parts = [(r * 2 + 1) % 4 for r in range(size)]  # also none
    before = sum(parts[:rank])
    rows = np.concatenate([mine(r, dtype)[:parts[r]] for r in range(size)])
    same(comm.all_gather_v(x[:parts[rank]].copy(), parts), rows)
    summed = (rows.astype("float64") * size).astype(dtype)[before:before + parts[rank]]
    same(comm.reduce_scatter_v(rows, parts), summed)
    sent = [(rank + r) % 3 for r in range(size)]
    got = comm.all_to_all_v(np.repeat(x[:1], sum(sent), axis=0), sent, sent)
    firsts = [np.repeat(mine(r, dtype)[:1], sent[r], axis=0) for r in range(size)]
    same(got, np.concatenate(firsts))
    for root in range(size):
        same(comm.broadcast(x.copy(), root), every[root])
        same(comm.broadcast(x, root, np.empty_like(x)), every[root])
        got = comm.gather(x, root)
        same(got, every) if rank == root else None
        assert rank == root or got is None
        got = comm.reduce(x, root, "max")
        same(got, every.max(axis=0)) if rank == root else None
        assert rank == root or got is None
        same(comm.scatter(x if rank == root else None, root, np.empty((6 // size, 2), dtype)),
             every[root][part])
    right, left = (rank + 1) % size, (rank - 1) % size
    with pith.group():
        comm.send(x, right)
        got = comm.recv(np.empty_like(x), left)
    same(got, every[left])
same(comm.all_reduce(mine(rank), "avg"), of_all().mean(axis=0))
scaled = comm.all_reduce(mine(rank), pith.PreMulSum(0.5 + rank))
same(scaled, sum((0.5 + r) * mine(r) for r in range(size)))
same(comm.all_reduce(mine(rank, "int32"), pith.PreMulSum(3)), 3 * of_all("int32").sum(0, "int32"))
assert comm.barrier() is None
""")


def test_types_that_numpy_has_and_pith_has_not(run):
    run(2, MINE + """
z = np.array([1 + 2j, 3j], "complex64") * (rank + 1)
same(comm.all_reduce(z), np.array([3 + 6j, 9j], "complex64"))
same(comm.all_reduce(z, "prod"), np.array([-6 + 8j, -18], "complex64"))
same(comm.scan(z.astype("complex128"), "prod"),
     np.array([1 + 2j, 3j] if rank == 0 else [-6 + 8j, -18]))
same(comm.all_reduce(z, pith.PreMulSum(2j)), np.array([-12 + 6j, -18], "complex64"))
same(comm.reduce_scatter(z, "avg"), np.array([[1.5 + 3j], [4.5j]], "complex64")[rank])
shared = pith.empty(2, "complex128")
shared[:] = z
same(comm.all_reduce(shared, out=shared), np.array([3 + 6j, 9j]))
b = np.array([rank == 0, True, False])
same(comm.all_reduce(b, "max"), np.array([True, True, False]))
same(comm.all_reduce(b, "min"), np.array([False, True, False]))
same(comm.all_reduce(b, "land"), np.array([False, True, False]))
same(comm.all_reduce(b, "bor"), np.array([True, True, False]))
same(comm.all_reduce(b, "lxor"), np.array([True, False, False]))
for dtype in ("int16", "uint16", "longdouble", "S3", [("a", "i4"), ("b", "f8")]):
    x = np.ones(3, dtype)
    assert comm.all_gather(x).dtype == x.dtype
    same(comm.broadcast(x.copy(), 1), x)
for x, op, told in ((z, "max", "complex"), (b, "sum", "boolean"), (np.ones(2, "int16"), "sum",
                                                                    "only be moved"),
                    (np.ones(2), "band", "float64, for which band is not defined"),
                    (z, "lor", "complex")):
    try:
        comm.all_reduce(x, op)
        raise SystemExit("not refused")
    except pith.InvalidArgument as error:
        assert told in str(error), error
# bfloat16 as its bits.
one = np.full(4, 0x3F80, "uint16")
assert (comm.all_reduce(one, dtype="bfloat16") == 0x4000).all()
half = comm.all_reduce(one, pith.PreMulSum(0.25), dtype="bfloat16")
assert (half == 0x3F00).all(), half
""")


def test_shapes(run):
    run(2, MINE + """
for shape in ((), (0,), (3, 0), (1,), (2, 3, 4), (1,) * 20):
    x = np.full(shape, rank + 1.0)
    same(comm.all_reduce(x), np.full(shape, 3.0))
    same(comm.all_gather(x), np.stack([np.full(shape, 1.0), np.full(shape, 2.0)]))
x = mine(rank, shape=(4, 2))
for out in (np.empty((2, 4, 2)), np.empty((8, 2)), np.empty(16)):
    assert comm.all_gather(x, out) is out
    same(out.reshape(2, 4, 2), of_all(shape=(4, 2)))
rows = mine(rank, shape=(2, 3))
for out in (np.empty((1, 3)), np.empty(3)):
    comm.reduce_scatter(rows, out=out)
    same(out.reshape(3), of_all(shape=(2, 3)).sum(axis=0)[rank])
""")


def test_in_place(run):
    run(2, MINE + """
x = mine(rank)
assert comm.all_reduce(x, out=x) is x
same(x, of_all().sum(axis=0))
whole = np.zeros((2, 5))
whole[rank] = rank + 1
comm.all_gather(whole[rank], whole)
same(whole, np.repeat([[1.0], [2.0]], 5, axis=1))
comm.reduce_scatter(whole, out=whole[rank])
same(whole[rank], np.full(5, 2.0 * (rank + 1)))
try:
    comm.all_reduce(whole[0], out=whole.reshape(10)[2:7])
    raise SystemExit("not refused")
except pith.InvalidArgument as error:
    assert "overlap" in str(error)
""")


def test_without_copies(run):
    """The result lies where `out` does, and large arrays leave no second one behind."""
    run(2, """
import resource
x, out = np.ones(8 << 20, "float32"), np.empty(8 << 20, "float32")
comm.all_reduce(x, out=out)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3):
    comm.all_reduce(x, out=out)
    comm.all_reduce(x, out=out, async_op=True).wait()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 16 << 10, grown  # KiB: less than one array
""")


def test_groups(run):
    run(2, MINE + """
half = comm.split(rank)
with pith.group():
    a = comm.all_reduce(mine(rank))
    with pith.group():
        b = half.all_reduce(mine(rank))
    c = comm.all_gather(np.array([rank]))
same(a, of_all().sum(axis=0)), same(b, mine(rank)), same(c, np.array([[0], [1]]))
with pith.group(async_op=True) as several:
    outs = [comm.all_reduce(np.full(1000, i)) for i in range(20)]
several.wait()
assert several.done() and several.request.done()
assert all((out == 2 * i).all() for i, out in enumerate(outs))
with pith.group():
    pass
with pith.group(async_op=True) as nothing:
    pass
nothing.wait()

# A block that raises makes no call, and the thread can go on.
try:
    with pith.group():
        comm.all_reduce(np.ones(3))
        raise KeyError("a fault of the program")
except KeyError:
    pass
same(comm.all_reduce(mine(rank)), of_all().sum(axis=0))
try:
    with pith.group():
        comm.all_reduce(np.ones(3))
        comm.broadcast(np.ones(3), root=7)
except pith.InvalidArgument as error:
    assert "root is 7" in str(error)
same(comm.all_reduce(mine(rank)), of_all().sum(axis=0))

def refuses(word, call):
    try:
        call()
    except pith.InvalidUsage as error:
        assert word in str(error), error
    else:
        raise SystemExit(f"not refused: {word}")

with pith.group():
    refuses("group with async_op", lambda: comm.barrier(async_op=True))
    refuses("group is open", lambda: comm.split(0))
    refuses("group is open", lambda: pith.init())
    refuses("inside another", lambda: pith.group(async_op=True).__enter__())
group = pith.group()
refuses("no request", lambda: group.request)
with group:
    pass
refuses("entered before", group.__enter__)
refuses("another thread", lambda: pith.group().__exit__(None, None, None))
same(comm.all_reduce(mine(rank)), of_all().sum(axis=0))
""")


def test_requests(run):
    run(2, MINE + """
import gc, weakref
works = [comm.all_reduce(np.full(50_000, i + rank), async_op=True) for i in range(10)]
for i, work in enumerate(works):
    assert (work.wait() == 2 * i + 1).all()
    assert work.done() and (work.result == 2 * i + 1).all() and work.wait() is work.result
work = comm.all_gather(mine(rank), async_op=True)
same(work.wait(timeout=20), of_all())
# Another rank is late.
if rank == 0:
    work = comm.all_reduce(np.ones(4), async_op=True)
    assert not work.done()
    try:
        work.result
        raise SystemExit("no error")
    except pith.InvalidUsage as error:
        assert "not done" in str(error)
    begin = time.monotonic()
    try:
        work.wait(timeout=0.2)
        raise SystemExit("no error")
    except TimeoutError:
        assert 0.15 < time.monotonic() - begin < 5
    waiting = [threading.Thread(target=work.wait) for _ in range(3)]
    for thread in waiting: thread.start()
    for thread in waiting: thread.join()
    assert (work.result == 2).all()
else:
    time.sleep(0.7)
    comm.all_reduce(np.ones(4))
# Requests that nobody keeps: their arrays live until they are done.
for i in range(30):
    x = np.full(30_000, 1.0)
    comm.all_reduce(x, async_op=True)
    del x
    np.full(30_000, np.nan)
comm.barrier()
# The arrays go with the request.
class Kept(np.ndarray): pass
x = np.ones(5).view(Kept)
ref = weakref.ref(x)
work = comm.all_reduce(x, async_op=True)
del x
gc.collect()
assert ref() is not None or work.done()
work.wait()
gc.collect()
assert ref() is None
# A communicator that only a request keeps.
half = comm.split(0)
work = half.all_reduce(np.ones(100), async_op=True)
del half
assert (work.wait() == 2).all()
""")
