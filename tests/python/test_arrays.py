"""What is an array, and what is refused."""

import pytest


def test_kinds_without_numpy(start):
    """bytes, bytearray, array.array, memoryview: what Python has itself."""
    start(2, """
import array
import pith
comm = pith.init()
rank = comm.rank
x = array.array("d", [1.0, 2.0 + rank])
out = comm.all_reduce(x)
assert isinstance(out, memoryview) and out.tolist() == [2.0, 5.0], out
assert comm.all_gather(x).shape == (2, 2)
y = array.array("i", [0, 0, 0])
assert comm.all_reduce(memoryview(array.array("i", [1, 2, 3])), out=y) is y
assert y.tolist() == [2, 4, 6]
assert bytes(comm.all_gather(bytes([rank, 7]))) == bytes([0, 7, 1, 7])
buffer = bytearray(b"abc" if rank == 0 else b"   ")
comm.broadcast(buffer)
assert buffer == b"abc"
shared = pith.empty(4, "float32")
assert isinstance(shared, memoryview)
shared[:] = memoryview(array.array("f", [rank] * 4))
assert comm.all_reduce(shared, out=shared).tolist() == [1.0] * 4
assert comm.all_reduce(pith.empty((2, 0))).nbytes == 0
kept = pith.Compressor("topk:density=0.5,bypass=never")
comm.all_reduce(array.array("f", [1, 2, 3, 4]), compressor=kept)
assert kept.residual().tolist() == [1, 2, 0, 0]
import sys
assert "numpy" not in sys.modules and "torch" not in sys.modules
""", prelude="import sys\nsys.modules['numpy'] = None\ndel sys.modules['numpy']\n"
             "class Blocked:\n"
             "    def find_spec(self, name, path=None, target=None):\n"
             "        if name in ('numpy', 'torch'): raise ImportError(name)\n"
             "sys.meta_path.insert(0, Blocked())\n").succeed()


def test_torch(run):
    pytest.importorskip("torch.version")  # the folder torch here would pass for a package
    run(2, """
import torch
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.float8_e4m3fn):
    x = torch.ones(6).to(dtype) if dtype != torch.int64 else torch.ones(6, dtype=dtype)
    out = comm.all_reduce(x)
    assert out.dtype == dtype and (out.float() == 2).all(), out
assert (comm.all_reduce(torch.ones(3, dtype=torch.complex64)) == 2).all()
mine = torch.tensor([True, rank == 0])
assert (comm.all_reduce(mine, "min") == torch.tensor([True, False])).all()
x = torch.full((4, 2), float(rank))
assert comm.all_reduce(x, out=x) is x and (x == 1).all()
assert comm.all_gather(x).shape == (2, 4, 2)
np_out = np.empty((4, 2), "float32")
comm.all_reduce(x, out=np_out)
assert (np_out == 2).all()
for bad, told in ((x.t(), "contiguous"), (torch.ones(2, requires_grad=True), "grad")):
    try:
        comm.all_reduce(bad)
        raise SystemExit("not refused")
    except pith.InvalidArgument as error:
        assert told in str(error), error
k = pith.Compressor("topk:density=0.5,bypass=never")
indices, values = comm.all_reduce_sparse(torch.tensor([1.0, 4.0, 3.0, 2.0]), k)
assert indices.tolist() == [1, 2] and values.tolist() == [8, 6]
""")


def test_bfloat16_of_ml_dtypes(run):
    pytest.importorskip("ml_dtypes")
    run(2, """
import ml_dtypes
for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
    out = comm.all_reduce(np.ones(5, dtype))
    assert out.dtype == dtype and (out.astype("f4") == 2).all()
frozen = np.ones(5, ml_dtypes.bfloat16)
frozen.flags.writeable = False
for bad, told in ((dict(x=np.ones((4, 4), ml_dtypes.bfloat16)[:, 1]), "contiguous"),
                  (dict(x=np.ones(5, ml_dtypes.bfloat16), out=frozen), "read-only")):
    try:
        comm.all_reduce(**bad)
        raise SystemExit("not refused")
    except pith.InvalidArgument as error:
        assert told in str(error), error
""")


def test_dlpack_of_any_library(run):
    """An object that has nothing but DLPack, as of a library that Pith does not know."""
    run(2, """
class Tensor:
    def __init__(self, array, versioned=True, device=(1, 0)):
        self.array, self.versioned, self.device = array, versioned, device
        self.dtype, self.shape = array.dtype, array.shape
    def __dlpack_device__(self): return self.device
    def __dlpack__(self, **wanted):
        if not self.versioned and "max_version" in wanted: raise TypeError("max_version")
        return self.array.__dlpack__(**(wanted if self.versioned else {}))
for versioned in (True, False):
    x = Tensor(np.full(4, rank + 1.0), versioned)
    out = Tensor(np.empty(4), versioned)
    assert comm.all_reduce(x, out=out) is out
    assert (out.array == 3).all()
    assert (comm.all_reduce(x) == 3).all()
frozen = np.ones(4)
frozen.flags.writeable = False
class Broken:
    def __dlpack_device__(self): return (1, 0)
    def __dlpack__(self, **wanted): return "no capsule"
class Elsewhere(Broken):
    def __dlpack__(self, **wanted): raise BufferError("it is elsewhere")
for bad, told in ((dict(x=x, out=Tensor(frozen)), "read-only"), (dict(x=Broken()), "no DLPack"),
                  (dict(x=Elsewhere()), "it is elsewhere"),
                  (dict(x=Tensor(np.ones((3, 3)).T)), "contiguous")):
    try:
        comm.all_reduce(**bad)
        raise SystemExit(f"not refused: {told}")
    except pith.InvalidArgument as error:
        assert told in str(error), error
comm.barrier()
""")


def test_jax(run):
    pytest.importorskip("jax")
    run(2, """
import jax.numpy as jnp
out = comm.all_reduce(jnp.full(4, rank + 1.0))
assert isinstance(out, np.ndarray) or isinstance(out, memoryview)
assert (np.asarray(out) == 3).all()
for dtype in (jnp.float32, jnp.bfloat16):
    fixed = jnp.full(4, rank, dtype)
    out = np.asarray(comm.all_reduce(fixed, op="max"))
    assert (out == 1).all() if dtype != jnp.bfloat16 else (out == 0x3f80).all() or (out == 1).all()
    try:
        comm.broadcast(fixed, root=1 - rank)  # on every rank, which is not the root
    except pith.InvalidArgument as error:
        assert "x is read-only" in str(error), error
    else:
        raise SystemExit("JAX's array was written")
    assert (fixed == rank).all()
""")


def test_what_is_refused(run):
    """Each with a message that names the argument, what it is and what was expected; nothing is
    sent, and the ranks go on."""
    run(2, """
x = np.ones((4, 4))
frozen = np.ones(4)
frozen.flags.writeable = False
def refused(kind, told, call):
    try:
        call()
    except kind as error:
        for word in told.split("|"):
            assert word in str(error), f"{word!r} is not in: {error}"
    else:
        raise SystemExit(f"not refused: {told}")
bad = pith.InvalidArgument
refused(bad, "x is not contiguous|C order", lambda: comm.all_reduce(x[:, 0]))
refused(bad, "x is not contiguous", lambda: comm.all_reduce(np.asfortranarray(x)))
refused(bad, "out is read-only", lambda: comm.all_reduce(np.ones(4), out=frozen))
refused(bad, "x is read-only", lambda: comm.broadcast(frozen, root=1 - rank))
refused(bad, "out is read-only", lambda: comm.recv(b"abc", 1))
refused(bad, "out has elements of float32|expected float64",
        lambda: comm.all_reduce(np.ones(4), out=np.ones(4, "f4")))
refused(bad, "out has shape (3,)|expected (4,)",
        lambda: comm.all_reduce(np.ones(4), out=np.ones(3)))
refused(bad, "out has shape (4, 2)|expected (2, 4)",
        lambda: comm.all_gather(np.ones(4), np.ones((4, 2))))
refused(bad, "x has shape (3,)|2 ranks", lambda: comm.reduce_scatter(np.ones(3)))
refused(bad, "x has shape ()", lambda: comm.all_to_all(np.float64(3)))
v = np.ones(3)
refused(bad, "counts has 1 elements, expected 2", lambda: comm.all_gather_v(v, [3]))
refused(bad, "counts is no sequence", lambda: comm.all_gather_v(v, 3))
refused(bad, f"counts[{rank}] is 2, expected 3, the length of x",
        lambda: comm.all_gather_v(v, [2, 2]))
refused(bad, "counts[0] is -1", lambda: comm.reduce_scatter_v(v, [-1, 4]))
refused(bad, "the sum of counts is 4, expected 3", lambda: comm.reduce_scatter_v(v, [3, 1]))
refused(bad, f"recv_counts[{rank}] is", lambda: comm.all_to_all_v(v, [1, 2], [2, 1]))
refused(bad, "x has shape ()", lambda: comm.all_gather_v(np.float64(3), [1, 1]))
refused(bad, "x has elements of format", lambda: comm.all_reduce(np.ones(3, ">f8")))
refused(bad, "x has elements of format 'O'", lambda: comm.broadcast(np.array([None])))
refused(bad, "op is 'add'|'sum'", lambda: comm.all_reduce(np.ones(3), "add"))
refused(bad, "op is 3", lambda: comm.all_reduce(np.ones(3), 3))
refused(bad, "scalar|no number of type float64",
        lambda: comm.all_reduce(np.ones(3), pith.PreMulSum("a")))
refused(bad, "scalar", lambda: comm.all_reduce(np.ones(3, "uint8"), pith.PreMulSum(-1)))
refused(bad, "root is 2|expected 0 to 1", lambda: comm.reduce(np.ones(3), root=2))
refused(bad, "peer is -1", lambda: comm.send(np.ones(3), -1))
refused(bad, "dtype is 'float12'|bfloat16", lambda: comm.all_reduce(np.ones(3), dtype="float12"))
refused(bad, "x has items of 8 bytes|bfloat16",
        lambda: comm.all_reduce(np.ones(3), dtype="bfloat16"))
refused(bad, "out is None", lambda: comm.scatter(None, root=1 - rank))
refused(bad, "out is None", lambda: comm.all_reduce(None, compressor=pith.Compressor("topk")))
refused(bad, "compressor is no", lambda: comm.all_reduce(np.ones(3), compressor="topk"))
refused(bad, "stream is 'a'", lambda: comm.all_reduce(np.ones(3), stream="a"))
refused(TypeError, "x is of type list|expected an array", lambda: comm.all_reduce([1.0]))
refused(TypeError, "x is of type float", lambda: comm.all_reduce(1.0))
refused(TypeError, "all_gather", lambda: comm.all_gather(None))
refused(TypeError, "x is of type NoneType", lambda: comm.all_reduce(None))
refused(TypeError, "", lambda: comm.all_reduce())
refused(ValueError, "x is not contiguous", lambda: comm.all_reduce(x[:, 0]))
refused(pith.Error, "x is not contiguous", lambda: comm.all_reduce(x[::2]))
refused(bad, "topq", lambda: pith.Compressor("topq"))
refused(bad, "unique_id has 3 bytes|128", lambda: pith.Communicator(b"abc", 1, 0))
refused(bad, "rank is 5", lambda: pith.Communicator(pith.unique_id(), 2, 5))
refused(bad, "color is -2", lambda: comm.split(-2))
refused(bad, "exclude[0] is 9", lambda: comm.shrink([9]))
refused(bad, "dtype is 'x'", lambda: comm.algorithm("allreduce", 1, "x"))
refused(ValueError, "dtype is 'x'", lambda: pith.empty(3, "x"))
refused(ValueError, "shape is (-1,)", lambda: pith.empty(-1))
try:
    comm.all_reduce(x[::2])
except pith.Error as error:
    assert error.code == 4 and error.__class__ is pith.InvalidArgument
assert (comm.all_reduce(np.ones(3)) == 2).all()
""")


def test_registered_memory(run):
    run(2, """
import gc
for dtype in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float64"):
    a = pith.empty((3, 5), dtype)
    assert a.dtype == dtype and a.shape == (3, 5) and a.flags.writeable
    assert a.ctypes.data % 64 == 0
    a[:] = rank + 1
    assert (comm.all_reduce(a, out=a) == 3).all()
assert pith.empty(4, np.float32).dtype == "float32"
assert pith.empty(np.int64(4)).shape == (4,) and pith.empty(np.array([2, 3])).shape == (2, 3)
class Derived(np.ndarray): pass
total = comm.all_reduce(np.ones(3, dtype="float32").view(Derived))
assert isinstance(total, np.ndarray) and total.dtype == "float32" and total.shape == (3,)
assert pith.empty(4, "bfloat16").dtype == "uint16"
assert pith.empty(()).shape == () and pith.empty((0, 4)).size == 0
# Views keep the memory; it goes with the last of them, in flight too.
view = pith.empty(1 << 20)[5:10]
view[:] = 7
gc.collect()
assert (view == 7).all()
for _ in range(200):  # 200 x 64 MiB: only if they are freed
    big = pith.empty(16 << 20)
    big[0] = 1
work = [comm.all_reduce(pith.empty(1 << 18), async_op=True) for _ in range(8)]
gc.collect()
comm.barrier()
memory = pith.Memory(100)
assert len(memory) == 100 and memoryview(memory).nbytes == 100
""")
