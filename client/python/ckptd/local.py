"""A ckptd for a notebook or a test, started when it is needed and shared by local processes."""

import fcntl
import os
import select
import signal
import socket
import stat
import struct
import time
from typing import Any, Dict, IO, Optional

from . import _library, errors

_START_MAX = 60.0
_STOP_MAX = 60.0
_POLL = 0.02
_uses: Dict[str, "_Use"] = {}  # by folder: what this process uses, however often


def runtime_folder() -> str:
    """The folder of this user's sockets: in $XDG_RUNTIME_DIR, else in the folder for temporary
    files, which must exist. It must belong to the user, be closed to others, and be no symbolic
    link."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.path.isdir(base):
        path = os.path.join(base, "ckptd")
    else:
        base = os.environ.get("TMPDIR")
        if base and not os.path.isdir(base):
            raise errors.InvalidArgument(
                f"TMPDIR={base}: no such folder; set TMPDIR to a folder that exists")
        path = os.path.join(base or "/tmp", f"ckptd-{os.geteuid()}")
    return _private_folder(path)


def _private_folder(path: str) -> str:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise errors.PermissionDenied(
            f"folder {path}: {error.strerror}; set XDG_RUNTIME_DIR to a folder of yours") from None
    found = os.lstat(path)
    wrong = None
    if not stat.S_ISDIR(found.st_mode):
        wrong = "it is no directory"
    elif found.st_uid != os.geteuid():
        wrong = f"it belongs to user {found.st_uid}, not to {os.geteuid()}"
    elif found.st_mode & 0o077:
        wrong = f"others may open it (mode {stat.S_IMODE(found.st_mode):o})"
    if wrong:
        raise errors.PermissionDenied(
            f"folder {path}: {wrong}; remove it, or set XDG_RUNTIME_DIR to a folder of yours")
    return path


def _folder_of(store: str) -> str:
    import hashlib
    name = hashlib.sha256(os.fsencode(store)).hexdigest()[:16]
    return _private_folder(os.path.join(runtime_folder(), name))


def daemon_pid(path: str) -> Optional[int]:
    """Process that listens on the socket; None if nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return None
        peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", peer)[0]


def _lock(file: IO[Any], kind: int, end: float, what: str) -> None:
    """Takes a lock of this process within the time; Python's signal handlers run meanwhile."""
    while True:
        try:
            return fcntl.lockf(file, kind | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= end:
                raise errors.DeadlineExceeded(f"{what}: another process holds its lock") from None
        time.sleep(_POLL)


class _Use:
    """This process's use of one daemon. The locks are POSIX locks: the kernel frees them when the
    process dies, and forked children do not have them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.socket = os.path.join(folder, "ckptd.sock")
        self.log = os.path.join(folder, "ckptd.log")
        self.count = 0
        self.owner = os.getpid()
        self.child: Optional[int] = None  # the daemon, if this process started it
        self._starts = open(os.path.join(folder, "start.lock"), "a+b")
        self._users = open(os.path.join(folder, "users.lock"), "a+b")

    def enter(self, store: str, arena: str, timeout: float) -> None:
        """Takes a share of the daemon, and starts it if it does not run."""
        end = time.monotonic() + timeout
        _lock(self._starts, fcntl.LOCK_EX, end, f"store {store}")
        try:
            _lock(self._users, fcntl.LOCK_SH, end, f"store {store}")
            if daemon_pid(self.socket) is None:
                self._start(store, arena, end)
        finally:
            fcntl.lockf(self._starts, fcntl.LOCK_UN)

    def _start(self, store: str, arena: str, end: float) -> None:
        program = _library.program_path("ckptd")
        # The first start of a store would measure its disk and write up to 1 GiB.
        environment = {"CKPTD_IO_SHAPE": "32x4MiB", **os.environ}
        log_flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        # A session of its own: no Ctrl-C of this terminal ends the daemon.
        self.child = child = os.posix_spawn(
            program, [program, "--data", store, "--listen", "unix:" + self.socket, "--arena", arena,
                      "--warm-pool", "0"], environment, setsid=True,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                          (os.POSIX_SPAWN_OPEN, 1, self.log, log_flags, 0o600),
                          (os.POSIX_SPAWN_DUP2, 1, 2)])
        while daemon_pid(self.socket) is None:
            if self._reap():
                raise errors.FailedPrecondition(
                    f"store {store}: ckptd did not start: {self._last_line()}")
            if time.monotonic() >= end:
                os.kill(child, signal.SIGKILL)  # not reaped yet: the number is still its own
                os.waitpid(child, 0)
                self.child = None
                raise errors.DeadlineExceeded(
                    f"store {store}: ckptd was not ready in time; see {self.log}")
            time.sleep(_POLL)

    def _reap(self) -> bool:
        """True if the daemon was started here and has ended."""
        if self.child is None:
            return False
        try:
            if os.waitpid(self.child, os.WNOHANG)[0] == 0:
                return False
        except ChildProcessError:  # somebody waits for all children of this process
            pass
        self.child = None
        return True

    def _last_line(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = log.read().strip().split("\n")
        return lines[-1] or f"it said nothing in {self.log}"

    def leave(self) -> None:
        """Ends the daemon if no other process uses it."""
        end = time.monotonic() + _STOP_MAX
        try:
            _lock(self._starts, fcntl.LOCK_EX, end, f"folder {self.folder}")
            try:
                fcntl.lockf(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return  # somebody else uses it, and will end it
            self._stop(end)
        finally:
            self.close()

    def _stop(self, end: float) -> None:
        pid = daemon_pid(self.socket)
        if not pid:  # it has ended, or lies in another pid namespace
            return
        descriptor = os.pidfd_open(pid)
        try:
            if daemon_pid(self.socket) == pid:
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)  # drains, then exits
            watch = select.poll()
            watch.register(descriptor, select.POLLIN)
            while not watch.poll(200):
                if time.monotonic() >= end:
                    raise errors.DeadlineExceeded(
                        f"ckptd, process {pid}: it has not ended in time; see {self.log}")
        finally:
            os.close(descriptor)
            self._reap()

    def close(self) -> None:
        self._users.close()
        self._starts.close()


class Local:
    """Made by `local`. While the block lasts, CKPTD_SOCKET names the daemon: for sessions of this
    process, and for processes that it starts."""

    def __init__(self, store: str, arena: str, timeout: float) -> None:
        self.store = store
        self._arena = arena
        self._timeout = timeout
        self._use: Optional[_Use] = None
        self._before: Optional[str] = None

    def __enter__(self) -> "Local":
        runtime_folder()  # before the store is made, which may be in a missing TMPDIR
        try:
            os.makedirs(self.store, exist_ok=True)
        except OSError as error:
            raise errors.InvalidArgument(
                f"store {self.store}: {error.strerror}; name a folder that can be made") from None
        self.store = os.path.realpath(self.store)
        folder = _folder_of(self.store)
        use = _uses.get(folder)
        if use is None or use.owner != os.getpid():
            use = _Use(folder)
        try:
            use.enter(self.store, self._arena, self._timeout)
        except BaseException:
            if use.count == 0:
                use.close()
            raise
        _uses[folder] = use
        use.count += 1
        self._use = use
        self._before = os.environ.get("CKPTD_SOCKET")
        os.environ["CKPTD_SOCKET"] = self.socket
        return self

    def __exit__(self, *_: Any) -> None:
        use, self._use = self._use, None
        if use is None:
            return
        if self._before is None:
            os.environ.pop("CKPTD_SOCKET", None)
        else:
            os.environ["CKPTD_SOCKET"] = self._before
        if use.owner != os.getpid():  # a forked child: the use is its parent's
            return
        use.count -= 1
        if use.count == 0:
            _uses.pop(use.folder, None)
            use.leave()

    @property
    def socket(self) -> str:
        return "unix:" + self._in_use().socket

    @property
    def log(self) -> str:
        """File with what the daemon says."""
        return self._in_use().log

    @property
    def pid(self) -> Optional[int]:
        """Process of the daemon; None if it has died."""
        return daemon_pid(self._in_use().socket)

    def _in_use(self) -> _Use:
        if self._use is None:
            raise errors.FailedPrecondition(
                f"store {self.store}: the daemon runs in the block of `with ckptd.local(...)` only")
        return self._use


def local(path: str, *, arena: str = "2GiB", timeout: float = _START_MAX) -> Local:
    """A context manager with a ckptd on the store at `path`, made if it is missing.

    The first process starts the daemon, in a session of its own. The last process that leaves its
    block ends it, and no death of a process ends it earlier. A process that is killed leaves
    nothing behind but the daemon, which the next one uses. `arena`: shared memory of all sessions.
    """
    return Local(os.fspath(path), arena, timeout)
