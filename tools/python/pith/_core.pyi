from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, overload

from pith.stats import CompressorStats

_A = TypeVar("_A")
_Op = (
    Literal["sum", "prod", "max", "min", "avg", "band", "bor", "bxor", "land", "lor", "lxor"]
    | PreMulSum
)

def init_from_environment() -> Communicator: ...
def init_all(nranks: int) -> list[Communicator]:
    """Ranks that are threads of this process: one communicator each."""

def unique_id() -> bytes:
    """Makes an id for one communicator; this process then listens for its ranks. The program sends
    it to all ranks. It holds a secret."""

def join(unique_id: bytes, nranks: int, rank: int) -> Communicator:
    """Joins a communicator whose ranks call grow(nranks), with the id that one of them has made.
    rank: from its size to nranks - 1, each once."""

def version() -> tuple[int, int, int]: ...
def group(*, async_op: bool = False) -> Group:
    """Calls in the `with` block begin together at its end, and their results are there after it;
    with async_op they run in the background, see Group.wait."""

class PreMulSum:
    """Multiplies this rank's input by a scalar before the sum."""

    def __init__(self, scalar: float) -> None: ...
    @property
    def scalar(self) -> float: ...

class Memory:
    """Bytes that the other ranks of this host read directly, with the buffer protocol."""

    def __init__(self, nbytes: int) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Request(Generic[_A]):
    """A call in the background. It keeps the arrays of the call until it is done."""

    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> _A:
        """The call's result, or its exception. After `timeout` seconds TimeoutError: the call goes
        on."""
    @property
    def result(self) -> _A:
        """As wait(), but InvalidUsage while it is not done."""

class Group:
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    @property
    def request(self) -> Request[None]: ...
    def wait(self, timeout: float | None = None) -> None: ...
    def done(self) -> bool: ...

class Compressor:
    """The state of one vector on one rank. `spec` as in compression.md, for instance
    "ar-topk:density=0.01"."""

    def __init__(self, spec: str) -> None: ...
    @property
    def spec(self) -> str: ...
    @property
    def stats(self) -> CompressorStats: ...
    def save(self) -> bytes: ...
    def load(self, state: Any) -> None:
        """Adds a saved state of the same spec."""
    def reset(self) -> None: ...
    def scale(self, factor: float) -> None:
        """Multiplies the residual, for a changed loss scale."""
    def set_shape(self, shapes: Iterable[Sequence[int]]) -> None:
        """The shapes of the tensors that the vector consists of, for schemes that work on matrices.
        Before the first call."""
    def set_graph(self, edges: Iterable[tuple[int, int]]) -> None:
        """The ranks that tell each other, for "choco:graph=stated". Before the first call."""
    def residual(self) -> Any:
        """A copy, as a NumPy array of float32 (without NumPy a memoryview)."""
    def accumulator(self, count: int) -> Any:
        """The residual itself, as an array of float32: add the next gradient into it and pass it as
        x. Afterwards reset() is refused."""

class Communicator:
    """The ranks that call together. One thread at a time may use it; abort() any."""

    def __new__(cls, unique_id: bytes, nranks: int, rank: int) -> Self: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def failed(self) -> tuple[int, ...]:
        """The ranks whose process or host is gone."""
    @property
    def last_completed(self) -> int:
        """The number of the last call that all survivors of a shrink had completed."""
    def check(self) -> None:
        """Raises the error that has revoked the communicator, or that of a rank's death."""
    def algorithm(self, collective: str, count: int, dtype: str = "float32") -> str: ...
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Ranks with the same color form a new communicator, ordered by key. None: no member."""
    def shrink(self, exclude: Sequence[int] = [], *, abort: bool = False) -> Communicator:
        """The communicator of the survivors."""
    def unique_id(self) -> bytes:
        """Makes an id for one growth of this communicator; the program sends it to the ranks that
        join. It holds a secret."""
    def grow(self, nranks: int, unique_id: bytes | None = None) -> Communicator:
        """A communicator of these ranks, which keep their numbers, and of those that join(). The
        rank that made the id passes it. This communicator stays usable."""
    def finalize(self) -> None:
        """Waits for what is in flight, and leaves."""
    def abort(self) -> None:
        """Ends running calls on all ranks, and the communicator. Any thread, also the handler of a
        signal."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def all_reduce_sparse(
        self,
        x: _A,
        compressor: Compressor,
        op: Literal["sum", "avg"] = "sum",
        *,
        capacity: int | None = None,
        dtype: str | None = None,
        stream: Any = None,
    ) -> tuple[Any, _A]:
        """The sum as pairs: indices in ascending order, and values.

        capacity: the most pairs; without it there is room for all. More of them raise
        InvalidArgument when the call is over, and the pairs are lost.
        """
    @overload
    def all_reduce(
        self,
        x: _A | None,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """The op over all ranks, on every rank. With a compressor x=None is a gradient of zeros."""
    @overload
    def all_reduce(
        self,
        x: _A | None,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def all_reduce(
        self,
        x: _A | None,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def reduce(
        self,
        x: _A,
        root: int = 0,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | None:
        """The op over all ranks, on the root; None elsewhere."""
    @overload
    def reduce(
        self,
        x: _A,
        root: int = 0,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A | None]: ...
    @overload
    def reduce(
        self,
        x: _A,
        root: int = 0,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | None | Request[_A | None]: ...
    @overload
    def scan(
        self,
        x: _A,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """Over the ranks up to this one, in their order."""
    @overload
    def scan(
        self,
        x: _A,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def scan(
        self,
        x: _A,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def exscan(
        self,
        x: _A,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | None:
        """Over the ranks before this one, in their order; None on rank 0."""
    @overload
    def exscan(
        self,
        x: _A,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A | None]: ...
    @overload
    def exscan(
        self,
        x: _A,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | None | Request[_A | None]: ...
    @overload
    def broadcast(
        self,
        x: _A,
        root: int = 0,
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """The root's x, in x itself or in out.

        compressor, here and in all_gather, reduce_scatter and all_to_all: how messages are coded.
        """
    @overload
    def broadcast(
        self,
        x: _A,
        root: int = 0,
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def broadcast(
        self,
        x: _A,
        root: int = 0,
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def all_gather(
        self,
        x: _A,
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """A row per rank."""
    @overload
    def all_gather(
        self,
        x: _A,
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def all_gather(
        self,
        x: _A,
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def gather(
        self,
        x: _A,
        root: int = 0,
        out: _A | None = None,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | None:
        """A row per rank, on the root; None elsewhere."""
    @overload
    def gather(
        self,
        x: _A,
        root: int = 0,
        out: _A | None = None,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A | None]: ...
    @overload
    def gather(
        self,
        x: _A,
        root: int = 0,
        out: _A | None = None,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | None | Request[_A | None]: ...
    @overload
    def reduce_scatter(
        self,
        x: _A,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """The op over all ranks; each gets its part of the first axis."""
    @overload
    def reduce_scatter(
        self,
        x: _A,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def reduce_scatter(
        self,
        x: _A,
        op: _Op = "sum",
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def scatter(
        self,
        x: _A | None,
        root: int = 0,
        out: _A | None = None,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """Each rank gets its part of the first axis of the root's x."""
    @overload
    def scatter(
        self,
        x: _A | None,
        root: int = 0,
        out: _A | None = None,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def scatter(
        self,
        x: _A | None,
        root: int = 0,
        out: _A | None = None,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def all_to_all(
        self,
        x: _A,
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """Part r of the first axis goes to rank r."""
    @overload
    def all_to_all(
        self,
        x: _A,
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def all_to_all(
        self,
        x: _A,
        out: _A | None = None,
        *,
        compressor: Compressor | None = None,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def all_gather_v(
        self,
        x: _A,
        counts: Sequence[int],
        out: _A | None = None,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """The arrays of all ranks, along the first axis; rank r has counts[r] rows."""
    @overload
    def all_gather_v(
        self,
        x: _A,
        counts: Sequence[int],
        out: _A | None = None,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def all_gather_v(
        self,
        x: _A,
        counts: Sequence[int],
        out: _A | None = None,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def reduce_scatter_v(
        self,
        x: _A,
        counts: Sequence[int],
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """The op over all ranks; rank r gets counts[r] rows of it, the first rows rank 0."""
    @overload
    def reduce_scatter_v(
        self,
        x: _A,
        counts: Sequence[int],
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def reduce_scatter_v(
        self,
        x: _A,
        counts: Sequence[int],
        op: _Op = "sum",
        out: _A | None = None,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def all_to_all_v(
        self,
        x: _A,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        out: _A | None = None,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A:
        """The next send_counts[r] rows go to rank r; from it come recv_counts[r]."""
    @overload
    def all_to_all_v(
        self,
        x: _A,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        out: _A | None = None,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def all_to_all_v(
        self,
        x: _A,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        out: _A | None = None,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def send(
        self,
        x: Any,
        peer: int,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> None: ...
    @overload
    def send(
        self,
        x: Any,
        peer: int,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[None]: ...
    @overload
    def send(
        self,
        x: Any,
        peer: int,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> None | Request[None]: ...
    @overload
    def recv(
        self,
        out: _A,
        peer: int,
        *,
        async_op: Literal[False] = False,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A: ...
    @overload
    def recv(
        self,
        out: _A,
        peer: int,
        *,
        async_op: Literal[True],
        dtype: str | None = None,
        stream: Any = None,
    ) -> Request[_A]: ...
    @overload
    def recv(
        self,
        out: _A,
        peer: int,
        *,
        async_op: bool,
        dtype: str | None = None,
        stream: Any = None,
    ) -> _A | Request[_A]: ...
    @overload
    def barrier(
        self,
        *,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def barrier(
        self,
        *,
        async_op: Literal[True],
    ) -> Request[None]: ...
    @overload
    def barrier(
        self,
        *,
        async_op: bool,
    ) -> None | Request[None]: ...
