"""Collective communication for any worker on any link, with compressed gradients.

comm = pith.init() takes rank and size from the launcher; its methods are the collectives. Arrays
are of any library with the buffer protocol or DLPack, as NumPy, PyTorch, CuPy and JAX, in C order,
and are not copied."""

from __future__ import annotations

from pith._core import (
    Communicator,
    Compressor,
    Group,
    Memory,
    PreMulSum,
    Request,
    group,
    init_all,
    join,
    unique_id,
    version,
)
from pith.arrays import empty
from pith.errors import (
    CudaError,
    Error,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    RemoteError,
    SystemFailure,
)
from pith.recorder import Recorder
from pith.report import report
from pith.start import init
from pith.stats import CompressorStats

__all__ = [
    "Communicator",
    "Compressor",
    "CompressorStats",
    "CudaError",
    "Error",
    "Group",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "Memory",
    "PreMulSum",
    "Recorder",
    "RemoteError",
    "Request",
    "SystemFailure",
    "empty",
    "group",
    "init",
    "init_all",
    "join",
    "report",
    "unique_id",
    "version",
]
