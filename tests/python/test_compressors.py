"""Compressors: sums, statistics, and their state."""


def test_sums_and_state(run):
    run(2, """
gradient = np.array([8, 1, 0, 0] if rank == 0 else [0, 1, 0, -9], "float32")
spec = "topk:density=0.25,bypass=never"
k = pith.Compressor(spec)
assert k.spec == spec and repr(k) == f"pith.Compressor('{spec}')"
assert (comm.all_reduce(gradient, compressor=k) == [8, 0, 0, -9]).all()
assert k.residual().tolist() == [0, 1, 0, 0]
stats = k.stats
assert isinstance(stats, pith.CompressorStats)
assert (stats.calls, stats.count, stats.selected_local, stats.bypassed) == (1, 4, 1, False)
state = k.save()
assert isinstance(state, bytes)
out = np.empty(4, "float32")
assert comm.all_reduce(None, out=out, compressor=k) is out
assert out.tolist() == [0, 2, 0, 0]
# A new one goes on from the state; scaling doubles what it keeps.
again = pith.Compressor(spec)
again.load(state)
again.scale(2)
assert comm.all_reduce(None, out=out, compressor=again).tolist() == [0, 4, 0, 0]
again.load(memoryview(state))
again.reset()
assert again.stats.calls == 0
for bad in (b"", b"damaged", state[:-1], state[:20] + b"x" + state[21:]):
    try:
        again.load(bad)
        raise SystemExit("not refused")
    except pith.InvalidArgument:
        pass
try:
    pith.Compressor(spec).residual()
    raise SystemExit("not refused")
except pith.InvalidUsage:
    pass
# As pairs.
indices, values = comm.all_reduce_sparse(gradient, again, "avg")
assert indices.tolist() == [0, 3] and values.tolist() == [4, -4.5]
again.reset()
try:
    comm.all_reduce_sparse(gradient, again, capacity=1)
    raise SystemExit("not refused")
except pith.InvalidArgument as error:
    assert "capacity" in str(error), error
# In the background and in groups, one compressor a tensor; bf16 values by their bits.
many = [pith.Compressor(spec) for _ in range(5)]
with pith.group():
    outs = [comm.all_reduce(gradient, compressor=one) for one in many]
assert all(out.tolist() == [8, 0, 0, -9] for out in outs)
work = comm.all_reduce(gradient, compressor=many[0], async_op=True)
del many
assert work.wait().tolist()[0] == 8
bits = np.full(8, 0x3F80, "uint16")
half = pith.Compressor("bf16:bypass=never")
assert (comm.all_reduce(bits, compressor=half, dtype="bfloat16") == 0x4000).all()
""")


def test_shapes(run):
    run(2, """
k = pith.Compressor("powersgd:rank=1")
k.set_shape([(40, 5, 10), [30], ()])
matrix = np.outer(np.arange(40), np.arange(50)).astype("f4")
gradient = np.concatenate([matrix.ravel(), np.arange(31)]).astype("f4")
for step in range(2):
    total = comm.all_reduce(gradient, compressor=k)
assert np.allclose(total, 2 * gradient, rtol=1e-4, atol=1e-2)
assert k.stats.bytes_sent == 4 * (40 + 31 + 1 + 50), k.stats.bytes_sent
for bad in ([(3, 4)], [3], (2, 3), [(2, -3)], [(2.0, 3.0)], None, [(2**40, 2**40)],
            [(1, 2**33, 2**33)]):
    try:
        k.set_shape(bad)
        raise SystemExit("not refused")
    except (pith.Error, TypeError, ValueError):
        pass
""")


def test_graph(run):
    run(3, """
k = pith.Compressor("choco:density=1,gamma=1,graph=stated")
for bad in ([(1, 1)], [(0, 1), (1, 0)], [(-1, 0)], [0, 1], [(0, 1, 2)], [(0, 2**40)], None):
    try:
        k.set_graph(bad)
        raise SystemExit("not refused")
    except (pith.Error, TypeError, ValueError):
        pass
k.set_graph([(0, 1), (1, 2)])
x = np.full(5, 3 * comm.rank, "f4")
x = comm.all_reduce(x, op="avg", compressor=k)
# Ranks 0 and 2 have one neighbour, rank 1 has two: every edge has the weight a third.
assert np.allclose(x, (1, 3, 5)[comm.rank]), x
""")


def test_accumulator(run):
    run(2, """
import gc
k = pith.Compressor("topk:density=0.25,bypass=never")
total = k.accumulator(4)
assert total.dtype == "float32" and total.tolist() == [0, 0, 0, 0]
out = np.empty(4, "float32")
for step in range(2):
    total += [1, 2 + rank, 0, 0]
    comm.all_reduce(total, out=out, compressor=k)
assert out.tolist() == [2, 3, 0, 0]  # of rank 0 and of rank 1
assert k.residual().tolist() == ([0, 2, 0, 0] if rank == 0 else [2, 0, 0, 0])
try:
    k.reset()
    raise SystemExit("not refused")
except pith.InvalidUsage as error:
    assert "accumulator" in str(error)
del k
gc.collect()
total += 1  # the array keeps the compressor
""")


def test_damaged_specs_and_uses(run):
    run(2, """
k = pith.Compressor("topk")
for call in (lambda: comm.all_reduce(np.ones(4), compressor=k), lambda: k.scale(0),
             lambda: comm.all_reduce(np.ones(4, "f4"), "max", compressor=k),
             lambda: k.scale(float("nan")), lambda: pith.Compressor(""),
             lambda: pith.Compressor("topk:density=2"), lambda: pith.Compressor("topk:colour=1")):
    try:
        call()
        raise SystemExit("not refused")
    except pith.InvalidArgument:
        pass
comm.all_reduce(np.ones(4, "f4"), compressor=k)
try:
    comm.split(0).all_reduce(np.ones(4, "f4"), compressor=k)
    raise SystemExit("not refused")
except pith.InvalidUsage:
    pass
comm.barrier()
""")


def test_numbers_of_two_parts_as_pairs(run):
    """An index stands for one number: complex ones are summed as reals, or not at all."""
    run(2, """
spec = "topk:density=0.5,bypass=never"
x = np.array([1 + 2j, 3 - 4j], "complex64")
try:
    comm.all_reduce_sparse(x, pith.Compressor(spec))
    raise SystemExit("not refused")
except pith.InvalidArgument as error:
    assert "x has elements of complex64, expected" in str(error), error
indices, values = comm.all_reduce_sparse(x.view("float32"), pith.Compressor(spec))
assert indices.tolist() == [2, 3] and values.tolist() == [6, -8]
assert (comm.all_reduce(x, compressor=pith.Compressor("none")) == 2 * x).all()
""")


def test_a_state_on_a_device(run):
    run(2, """
import ctypes
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.argtypes, pointer_of.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
class OnDevice:
    def __init__(self, array): self.array = array
    def __dlpack_device__(self): return (2, 0)
    def __dlpack__(self, stream=None):
        capsule = self.array.__dlpack__()
        tensor = pointer_of(capsule, b"dltensor")
        ctypes.c_int32.from_address(tensor + 8).value = 2  # the type of the device: CUDA
        return capsule
k = pith.Compressor("topk:density=0.25,bypass=never")
comm.all_reduce(np.ones(4, "f4"), compressor=k)
state = np.frombuffer(bytearray(k.save()), "uint8")
again = pith.Compressor(k.spec)
try:
    again.load(OnDevice(state))
    raise SystemExit("not refused")
except pith.InvalidArgument as error:
    assert "state is on a device, expected host memory" in str(error), error
again.load(state)
assert (again.save() == k.save())
""")


def test_dense_sums_in_few_bits(run):
    run(2, """
x = np.arange(300, dtype="float32") / 300 - 0.5
sums = x + 2 * x
for spec, error in (("fp16", 1e-3), ("int8:map=dynamic", 0.03), ("bounded:abs=0.01", 0.0201),
                    ("bounded:rel=0.001", 0.004), ("lossless", 0)):
    found = comm.all_reduce(x * (rank + 1), compressor=pith.Compressor(spec))
    assert np.abs(found - sums).max() <= error, (spec, np.abs(found - sums).max())
k = pith.Compressor("signum:momentum=0.5")
for turn, votes in ((1, 2), (-0.25, 2), (-4, -2)):
    found = comm.all_reduce(np.full(4, turn, "float32"), compressor=k)
    assert found.tolist() == [votes] * 4, (turn, found)
for bad, word in (("bounded:abs=0", "more than 0"), ("lossless:level=20", "1 to 19"),
                  ("bounded:rel=1", "rel is 1, expected more than 0 and below 1"),
                  ("signum:momentum=1", "at most 0.9999")):
    try:
        pith.Compressor(bad)
        raise SystemExit("not refused")
    except pith.InvalidArgument as error:
        assert word in str(error), error
""")


def test_moves_with_fewer_bits(run):
    run(2, """
coded = pith.Compressor("int8")
x = np.array([7, 0, -7, 7], "float32") * (rank + 1)
both = [[7, 0, -7, 7], [14, 0, -14, 14]]
assert comm.all_gather(x, compressor=coded).tolist() == both
assert comm.reduce_scatter(x, compressor=coded).tolist() == [[21, 0], [-21, 21]][rank]
assert comm.reduce_scatter(x, "avg", compressor=coded)[0] == [10.5, -10.5][rank]
other = both[1 - rank][2 * rank:2 * rank + 2]
assert comm.all_to_all(x, compressor=coded).reshape(2, 2)[1 - rank].tolist() == other
work = comm.all_gather(x, compressor=coded, async_op=True)
with pith.group():
    rows = comm.all_gather(x, compressor=pith.Compressor("fp8"))
    last = comm.broadcast(x, 1, np.empty_like(x), compressor=coded)
assert rows.tolist() == work.wait().tolist() == both and last.tolist() == both[1]
assert coded.stats.calls == 0
for bad in ("topk:density=0.1", "int8:feedback=1"):
    try:
        comm.all_gather(x, compressor=pith.Compressor(bad))
        raise SystemExit("not refused")
    except pith.InvalidArgument as error:
        assert "expected bf16, fp16, int8, fp8" in str(error), error
""")
