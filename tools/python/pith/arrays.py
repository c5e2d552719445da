"""New arrays for results, of the same kind as the arrays of a call; and arrays on Pith's memory."""

from __future__ import annotations

import importlib
import math
import operator
import sys
from collections.abc import Sequence
from typing import Any, SupportsIndex

from pith._core import Memory

# By Pith's names: the formats of Python's struct module that memoryview knows.
_FORMATS = {
    "int8": "b",
    "uint8": "B",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}
_SHAPED_BY = {"float16": "uint16", "bfloat16": "uint16", "float8_e4m3": "uint8",
              "float8_e5m2": "uint8", "complex64": "complex64", "complex128": "complex128"}


def empty_like(x: Any, shape: tuple[int, ...] | None = None) -> Any:
    """An array of the kind and type of `x`, in C order; without `shape`, of x's shape."""
    library = _library_of(x)
    if not library:
        return _empty_of_another(x, shape)
    module = sys.modules[library]
    wanted = x.shape if shape is None else shape
    if library == "torch":
        return module.empty(wanted, dtype=x.dtype, device=x.device)
    return module.empty(wanted, dtype=x.dtype)


def _library_of(x: Any) -> str:
    """Whose array it is, or one derived from it; "": of none that is known."""
    for kind in type(x).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("numpy", "torch", "cupy") and library in sys.modules:
            return library
    return ""


def _empty_of_another(x: Any, shape: tuple[int, ...] | None) -> Any:
    """For libraries whose arrays cannot be written (JAX), and for objects with a buffer alone."""
    try:
        view = memoryview(x)
    except (TypeError, BufferError, ValueError):
        return _numpy("out=None").empty(x.shape if shape is None else shape, dtype=x.dtype)
    wanted = (view.shape or ()) if shape is None else shape
    memory = memoryview(bytearray(math.prod(wanted) * view.itemsize))
    return _shaped(memory, view.format.lstrip("@<="), wanted)


def _shaped(memory: memoryview, letter: str, shape: Sequence[int]) -> memoryview:
    if 0 in shape:  # memoryview has no shapes with zeros but the flat one
        return memory.cast(letter)  # type: ignore[call-overload,no-any-return]
    return memory.cast(letter, tuple(shape))  # type: ignore[call-overload,no-any-return]


def _numpy(what: str) -> Any:
    try:
        return importlib.import_module("numpy")
    except ImportError as error:
        raise TypeError(f"{what} needs NumPy for an array of this kind: pip install numpy"
                        ) from error


def on_memory(memory: Memory | bytearray, shape: Sequence[int], dtype: str) -> Any:
    """A NumPy array, or else a memoryview, that lies on the memory."""
    try:
        numpy: Any = importlib.import_module("numpy")
    except ImportError:
        letter = _FORMATS.get(dtype)
        if letter is None:
            raise TypeError(f"dtype is {dtype!r}, which needs NumPy; without it: "
                            f"{', '.join(_FORMATS)}") from None
        return _shaped(memoryview(memory), letter, shape)
    count = math.prod(shape)
    kept = dtype if dtype == "float16" else _SHAPED_BY.get(dtype, dtype)
    return numpy.frombuffer(memory, dtype=kept, count=count).reshape(shape)


def empty_indices(x: Any, count: int) -> Any:
    """For the indices of a sparse result: int64 for PyTorch, which lacks most of uint64."""
    library = _library_of(x)
    if library == "torch":
        torch = sys.modules[library]
        return torch.empty(count, dtype=torch.int64, device=x.device)
    if library == "cupy":
        cupy = sys.modules[library]
        return cupy.empty(count, dtype="uint64")
    return empty_private(count, "uint64")


def empty_private(count: int, dtype: str) -> Any:
    """An array in this process's own memory; used by the module."""
    bytes_each = 8 if dtype.endswith("64") else 4
    return on_memory(bytearray(count * bytes_each), (count,), dtype)


def _item_bytes(dtype: str) -> int:
    bits = {"float8_e4m3": 8, "float8_e5m2": 8, "bfloat16": 16, "float16": 16, "complex64": 64,
            "complex128": 128}.get(dtype)
    if bits is None and dtype in _FORMATS:
        bits = int("".join(c for c in dtype if c.isdigit()))
    if bits is None:
        known = ", ".join([*_FORMATS, *_SHAPED_BY])
        raise ValueError(f"dtype is {dtype!r}, expected one of {known}")
    return bits // 8


def empty(shape: SupportsIndex | Sequence[int], dtype: Any = "float32") -> Any:
    """A NumPy array (without NumPy: a memoryview) in memory that the other ranks of this host read
    directly, so that reductions over it copy nothing. The memory is freed with the last array on
    it. NumPy lacks bfloat16 and 8-bit floats: their arrays are of uint16 and uint8, to be passed
    with dtype="bfloat16" and so on."""
    try:
        extents = (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        extents = tuple(shape)  # type: ignore[arg-type]
    if any(extent < 0 for extent in extents):
        raise ValueError(f"shape is {extents}, expected no negative extent")
    name = dtype if isinstance(dtype, str) else str(_numpy("such a dtype").dtype(dtype))
    return on_memory(Memory(math.prod(extents) * _item_bytes(name)), extents, name)
