"""The exceptions of Pith: one class per result code of pith.h."""

from __future__ import annotations

__all__ = [
    "CudaError",
    "Error",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "RemoteError",
    "SystemFailure",
]


class Error(RuntimeError):
    """The base of all. `code` is the result code of pith.h."""

    code: int = -1


class CudaError(Error):
    """A call of the CUDA driver failed."""

    code = 1


class SystemFailure(Error):
    """A call of the operating system failed, or memory is exhausted."""

    code = 2


class InternalError(Error):
    """A fault of the library."""

    code = 3


class InvalidArgument(Error, ValueError):
    """An argument is refused: nothing was sent and nothing changed.

    But for a sparse result that does not fit its capacity: the call is over by then.
    """

    code = 4


class InvalidUsage(Error):
    """The call does not fit the state, or the calls of the other ranks."""

    code = 5


class RemoteError(Error):
    """Another rank is gone, or the communicator was revoked. `failed`: the ranks that are known to
    be gone, numbered as in the communicator of the call."""

    code = 6

    def __init__(self, message: str, failed: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.failed = failed


_BY_CODE: dict[int, type[Error]] = {
    one.code: one
    for one in (CudaError, SystemFailure, InternalError, InvalidArgument, InvalidUsage)
}


def exception_of(code: int, message: str, failed: tuple[int, ...]) -> Error:
    """The exception for a result code; used by the module."""
    if code == RemoteError.code:
        return RemoteError(message, failed)
    return _BY_CODE.get(code, Error)(message)
