"""ckptd: checkpoints of Mixture-of-Experts training, saved by a daemon on the same machine.

`Session` connects to ckptd, `local` starts one for a notebook or a test. Importing this package
loads no library and starts nothing. `python -m ckptd doctor` says what is missing on a machine."""

from typing import Any

from . import errors
from .buffers import Memory
from .epoch import Epoch, View
from .errors import (Aborted, AlreadyExists, Corrupt, DeadlineExceeded, Error, FailedPrecondition,
                     InvalidArgument, IOFailure, NotFound, PermissionDenied, ResourceExhausted,
                     Unavailable, VersionMismatch)
from .local import Local, local
from .restore import Blob, Restore, Restored
from .session import Description, Session
from .snapshot import Level, Snapshot, SnapshotInfo, SnapshotTimings
from .units import Fragment, Tensor, Unit

__version__ = "0.1.0"

__all__ = [
    "Aborted", "AlreadyExists", "Blob",
    "Corrupt", "DeadlineExceeded", "Description", "Epoch", "Error",
    "FailedPrecondition", "Fragment", "InvalidArgument", "IOFailure", "Level", "Local", "Memory",
    "NotFound", "PermissionDenied", "ResourceExhausted", "Restore", "Restored", "Session",
    "Snapshot", "SnapshotInfo", "SnapshotTimings", "Tensor", "Unavailable", "Unit",
    "VersionMismatch", "View", "__version__", "errors", "local"]


def __getattr__(name: str) -> Any:
    """Names that need PyTorch or a framework: imported at their first use."""
    import importlib
    if name in ("Loop", "Saver"):
        return getattr(importlib.import_module(f".{name.lower()}", __name__), name)
    if name in ("convert", "dcp", "hf", "lightning", "megatron", "torchtitan"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
