"""Collective communication for any worker on any link, with compressed gradients."""

from __future__ import annotations

from pith._core import Communicator, unique_id
from pith._core import _init as init
from pith.errors import (
    CudaError,
    Error,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    RemoteError,
    SystemFailure,
)

__all__ = [
    "Communicator",
    "CudaError",
    "Error",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "RemoteError",
    "SystemFailure",
    "init",
    "unique_id",
]
