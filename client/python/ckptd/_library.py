"""Finds and loads libckpt, and finds the programs ckptd and ckptctl."""

import ctypes
import os
from typing import Any, Optional

from . import _abi, errors

LIBRARY = "libckpt.so.0"
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_loaded: Optional[Any] = None


def library_path() -> str:
    """$CKPTD_LIB_DIR, else the library inside the package, else what the loader finds."""
    folder = os.environ.get("CKPTD_LIB_DIR")
    if folder:
        return os.path.join(folder, LIBRARY)
    own = os.path.join(_PACKAGE, "_lib", LIBRARY)
    return own if os.path.exists(own) else LIBRARY


def program_path(name: str) -> str:
    """$CKPTD_BIN_DIR, else the program inside the package, else the one in $PATH."""
    folder = os.environ.get("CKPTD_BIN_DIR")
    candidates = [os.path.join(folder, name)] if folder else [
        os.path.join(part, name)
        for part in (os.path.join(_PACKAGE, "_bin"), *os.get_exec_path())]
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    place = f"CKPTD_BIN_DIR={folder}" if folder else "neither in this package nor in PATH"
    raise errors.NotFound(f"program {name}: {place}: not found; install the wheel of ckptd, or "
                          "build it and set CKPTD_BIN_DIR to the folder of its programs")


def _check_version(path: str, version: int) -> None:
    major, minor = version >> 16, version & 0xFFFF
    if major == _abi.CKPT_VERSION_MAJOR and minor >= _abi.CKPT_VERSION_MINOR:
        return
    raise errors.VersionMismatch(
        f"library {path}: version {major}.{minor}, and this package needs "
        f"{_abi.CKPT_VERSION_MAJOR}.{_abi.CKPT_VERSION_MINOR}; install both from one wheel, or "
        "unset CKPTD_LIB_DIR")


def load() -> Any:
    """libckpt with all its functions declared. Loaded at the first call."""
    global _loaded
    if _loaded is not None:
        return _loaded
    path = library_path()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise errors.NotFound(
            f"library {path}: {error}; install the wheel of ckptd, or build libckpt and set "
            "CKPTD_LIB_DIR to its folder") from None
    try:
        library.ckpt_version.restype = ctypes.c_uint32
        _check_version(path, library.ckpt_version())
        for name, (result, arguments) in _abi.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except AttributeError as error:
        raise errors.VersionMismatch(
            f"library {path}: {error}; it is older than this package: install both from one wheel"
        ) from None
    _loaded = library
    return library
