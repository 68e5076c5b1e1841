"""python -m ckptd doctor: what works on this machine, what does not, and what to do about it."""

import ctypes
import errno
import json
import os
import platform
import resource
import stat
import subprocess
import sys
from typing import Any, Callable, Iterator, List, NamedTuple, Optional

from . import __version__, _library, errors
from .local import daemon_pid, runtime_folder
from .session import Session

_IO_URING_SETUP = 425
_TIMEOUT = 3.0  # seconds without an answer of a daemon that count as none


class Finding(NamedTuple):
    level: str  # "ok", "warning" or "failure"
    topic: str
    sentence: str
    remedy: str = ""


def _python() -> Iterator[Finding]:
    machine = f"{sys.platform} {platform.machine()}"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        yield Finding("failure", "machine", f"this is {machine}; ckptd runs on Linux x86_64 only",
                      "use a Linux machine with an x86-64 processor")
    yield Finding("ok", "package", f"ckptd {__version__} on Python {platform.python_version()}")


def _libckpt() -> Iterator[Finding]:
    try:
        version = _library.load().ckpt_version()
    except errors.Error as error:
        yield Finding("failure", "libckpt", str(error), "pip install --force-reinstall ckptd")
        return
    yield Finding("ok", "libckpt",
                  f"{_library.library_path()}, version {version >> 16}.{version & 0xFFFF}")


def _programs() -> Iterator[Finding]:
    for name in ("ckptd", "ckptctl"):
        try:
            path = _library.program_path(name)
            ran = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20,
                                 check=False)
        except (errors.Error, OSError, subprocess.TimeoutExpired) as error:
            yield Finding("failure", name, f"program {name} cannot be run: {error}",
                          "pip install --force-reinstall ckptd")
            continue
        version = ran.stdout.strip().split(" ")[-1]
        if ran.returncode != 0:
            yield Finding("failure", name, f"{path} fails: {ran.stderr.strip()}",
                          "pip install --force-reinstall ckptd")
        elif version != __version__:
            yield Finding("warning", name, f"{path} is {version}, this package {__version__}",
                          "unset CKPTD_BIN_DIR, or install the wheel of that version")
        else:
            yield Finding("ok", name, f"{path}, version {version}")


def _io_uring() -> Iterator[Finding]:
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = ctypes.create_string_buffer(120)  # struct io_uring_params, all zero
    ring = libc.syscall(ctypes.c_long(_IO_URING_SETUP), ctypes.c_uint(1), parameters)
    if ring >= 0:
        os.close(ring)
        yield Finding("ok", "io_uring", "the kernel offers io_uring to this process")
        return
    reason = os.strerror(ctypes.get_errno())
    yield Finding("warning", "io_uring", f"io_uring is not allowed here ({reason}); ckptd writes "
                  "by pwritev2 instead, which takes more processor time",
                  "allow io_uring: sysctl kernel.io_uring_disabled=0, and the container's seccomp "
                  "profile")


def _memory() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        yield Finding("ok", "locked memory", "no limit: arenas can be registered with io_uring")
    else:
        yield Finding("warning", "locked memory",
                      f"at most {soft >> 20} MiB may be locked (ulimit -l): a ckptd started here "
                      "writes larger arenas without registered buffers, a little slower",
                      "ulimit -l unlimited, or LimitMEMLOCK=infinity in its unit")
    try:
        os.close(os.memfd_create("ckptd-doctor"))
    except OSError as error:
        yield Finding("failure", "shared memory", f"memfd_create: {error.strerror}; arenas need it",
                      "allow memfd_create in the container's seccomp profile")
        return
    free = _available_memory()
    sentence = f"arenas are anonymous shared memory; {free >> 20} MiB of memory are available"
    if free < 1 << 30:
        yield Finding("warning", "shared memory", sentence,
                      "start ckptd with an --arena that fits, and a smaller --session-arena")
    else:
        yield Finding("ok", "shared memory", sentence)


def _available_memory() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


def _dev_shm() -> Iterator[Finding]:
    """ckptd does not use /dev/shm, but data loaders beside it do, and it is the same memory."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError as error:
        yield Finding("warning", "/dev/shm", f"/dev/shm: {error.strerror}; ckptd does not need it, "
                      "data loaders of PyTorch do", "mount a tmpfs there")
        return
    size = found.f_blocks * found.f_frsize
    sentence = f"/dev/shm has {size >> 20} MiB; ckptd does not use it"
    if size <= 64 << 20:
        yield Finding("warning", "/dev/shm", sentence + ", but data loaders of PyTorch need more",
                      "docker run --shm-size=8g")
    else:
        yield Finding("ok", "/dev/shm", sentence)


def _runtime() -> Iterator[Finding]:
    try:
        yield Finding("ok", "local", f"ckptd.local() keeps its sockets in {runtime_folder()}")
    except errors.Error as error:
        yield Finding("failure", "local", str(error), "set XDG_RUNTIME_DIR to a folder of yours")


def _daemon(named: Optional[str]) -> Iterator[Finding]:
    path = named or os.environ.get("CKPTD_SOCKET")
    if not path:
        yield Finding("warning", "daemon", "no socket is named, so no daemon was asked",
                      "set CKPTD_SOCKET=unix:PATH, or use ckptd.local(PATH)")
        return
    plain = path[5:] if path.startswith("unix:") else path
    try:
        mode = os.stat(plain).st_mode
    except OSError as error:
        yield Finding("failure", "socket", f"socket {plain}: {error.strerror}",
                      _socket_remedy(error))
        return
    if not stat.S_ISSOCK(mode):
        yield Finding("failure", "socket", f"{plain} is no socket",
                      "name the path that ckptd was given as --listen")
        return
    if not os.access(plain, os.W_OK):
        yield Finding("failure", "socket", f"socket {plain}: user {os.geteuid()} may not write "
                      f"to it (mode {stat.S_IMODE(mode):o})",
                      "let ckptd make the socket anew; it has mode 666, and allow_uids decides")
        return
    pid = daemon_pid(plain)
    listener = "nobody listens" if pid is None else f"process {pid} listens"
    yield Finding("failure" if pid is None else "ok", "socket", f"socket {plain}: {listener}",
                  "start ckptd" if pid is None else "")
    if pid is not None:
        yield from _ask(path)


def _socket_remedy(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return "let this user pass the folders above the socket (chmod o+x)"
    return "start ckptd with --listen unix:PATH, or name the socket of one that runs"


def _ask(path: str) -> Iterator[Finding]:
    try:
        with Session(socket=path, control=True, timeout=_TIMEOUT) as session:
            status = session.query("status", timeout=_TIMEOUT)
    except errors.VersionMismatch as error:
        yield Finding("failure", "daemon", str(error), "upgrade the older side")
    except errors.PermissionDenied as error:
        yield Finding("failure", "daemon", str(error),
                      "add this user to allow_uids of ckptd, or set CKPTD_UID")
    except errors.Error as error:
        yield Finding("failure", "daemon", str(error), "look at the daemon's log")
    else:
        yield from _status(status)


def _status(status: Any) -> Iterator[Finding]:
    yield Finding("ok", "daemon", f"it answers and is {status['state']}, engine "
                  f"{status['engine']}, {len(status['sessions'])} sessions")
    used, most = status["arena_bytes"], status["arena_bytes_max"]
    left = most - used
    if left <= 0:
        yield Finding("warning", "arena", f"all {most >> 20} MiB are taken", "raise --arena")
    else:
        yield Finding("ok", "arena", f"{left >> 20} of {most >> 20} MiB are free")
    for condition in status["conditions"]:
        level = "failure" if condition["stops_saving"] else "warning"
        yield Finding(level, condition["name"], condition["reason"] or condition["name"],
                      condition["remedy"] or "")


def examine(socket: Optional[str] = None) -> List[Finding]:
    """All findings about this machine, and about the daemon at the socket."""
    checks: List[Callable[[], Iterator[Finding]]] = [
        _python, _libckpt, _programs, _io_uring, _memory, _dev_shm, _runtime,
        lambda: _daemon(socket)]
    return [finding for check in checks for finding in check()]


def run(socket: Optional[str] = None, as_json: bool = False) -> int:
    """Prints the findings. 1 if something does not work, else 0."""
    findings = examine(socket)
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{finding.level:8} {finding.topic}: {finding.sentence}")
            if finding.remedy:
                print(f"{'':8}   {finding.remedy}")
    return 1 if any(finding.level == "failure" for finding in findings) else 0


__all__ = ["Finding", "examine", "run"]
