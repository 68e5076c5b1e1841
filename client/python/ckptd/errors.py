"""Exceptions: one class per status of libckpt. Each has the library's sentence as its text."""

from . import _abi


class Error(Exception):
    """Base class, and the class of a status that this package does not know."""

    status: int = -1


class InvalidArgument(Error, ValueError):
    """The call contradicts itself or the run: a wrong size, an unknown unit, a plan with a hole."""

    status = _abi.CKPT_E_INVALID_ARGUMENT


class NotFound(Error, LookupError):
    """There is no such run, step, tag or unit."""

    status = _abi.CKPT_E_NOT_FOUND


class AlreadyExists(Error):
    """Another job trains this run, or the lineage already has a commit of this step."""

    status = _abi.CKPT_E_ALREADY_EXISTS


class Corrupt(Error):
    """Bytes are damaged, and no older version is there or allowed."""

    status = _abi.CKPT_E_CORRUPT


class VersionMismatch(Error):
    """The package, libckpt and ckptd are too far apart."""

    status = _abi.CKPT_E_VERSION_MISMATCH


class PermissionDenied(Error, PermissionError):
    """This user may not do that, or another user listens at the socket."""

    status = _abi.CKPT_E_PERMISSION_DENIED


class ResourceExhausted(Error):
    """No slab, arena, session or hold is left, or the disk is full."""

    status = _abi.CKPT_E_RESOURCE_EXHAUSTED


class Unavailable(Error, ConnectionError):
    """There is no daemon, or it does not answer."""

    status = _abi.CKPT_E_UNAVAILABLE


class DeadlineExceeded(Error, TimeoutError):
    """The daemon is there and did not finish in time."""

    status = _abi.CKPT_E_DEADLINE_EXCEEDED


class Aborted(Error):
    """The epoch ended, or the snapshot failed."""

    status = _abi.CKPT_E_ABORTED


class IOFailure(Error):
    """The disk failed."""

    status = _abi.CKPT_E_IO


class FailedPrecondition(Error):
    """The state of the run, the session or this process does not allow the call."""

    status = _abi.CKPT_E_FAILED_PRECONDITION


BY_STATUS = {kind.status: kind for kind in (
    InvalidArgument, NotFound, AlreadyExists, Corrupt, VersionMismatch, PermissionDenied,
    ResourceExhausted, Unavailable, DeadlineExceeded, Aborted, IOFailure, FailedPrecondition)}


# Reasons that a later try may not meet.
PASSING = (Unavailable, DeadlineExceeded, ResourceExhausted, IOFailure, Aborted)


def of_status(status: int, message: str) -> Error:
    """The exception for a status of libckpt."""
    kind = BY_STATUS.get(status)
    if kind is not None:
        return kind(message)
    error = Error(f"{message} (status {status})")
    error.status = status
    return error
