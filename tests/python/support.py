"""Helpers shared by the tests of the package ckptd: a real daemon, units, and its output."""

import array
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
if "CKPTD_INSTALLED" not in os.environ:  # otherwise the installed wheel is tested
    sys.path.insert(0, str(ROOT / "client" / "python"))

import ckptd  # noqa: E402
from ckptd import _library  # noqa: E402

TIMEOUT = 60.0
ARENA = 4 << 20
SLAB = 256 << 10


class Daemon:
    """A ckptd on its own folder, which can be killed and restarted on the same store."""

    def __init__(self, folder, *arguments):
        self.socket = os.path.join(folder, "ckptd.sock")
        self.log = []
        self._arguments = [
            _library.program_path("ckptd"), "--data", os.path.join(folder, "data"), "--listen",
            "unix:" + self.socket, "--arena", "256MiB", "--warm-pool", "0", *arguments]
        self._process = None
        self.start()

    def start(self):
        environment = {"CKPTD_IO_SHAPE": "32x4MiB", **os.environ}
        self._process = subprocess.Popen(self._arguments, stdin=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, text=True, env=environment)
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr, ready))
        self._reader.start()
        if not ready.wait(TIMEOUT) or self._process.poll() is not None:
            raise AssertionError("ckptd is not ready: " + "".join(self.log))

    def _read(self, lines, ready):
        with lines:
            for line in lines:
                self.log.append(line)
                if line.strip() == "ready":
                    ready.set()
        ready.set()  # also if the daemon has exited

    def stop(self, how=signal.SIGKILL):
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(TIMEOUT)
            self._reader.join(TIMEOUT)
            self._process = None


class DaemonTest(unittest.TestCase):
    """One daemon for all tests of a class, each test with its own run. `shared = False`, for tests
    that kill the daemon: one daemon per test."""

    shared = True

    @classmethod
    def setUpClass(cls):
        if cls.shared:
            folder = tempfile.TemporaryDirectory()
            cls.addClassCleanup(folder.cleanup)
            cls.folder = folder.name
            cls.daemon = Daemon(cls.folder)
            cls.addClassCleanup(cls.daemon.stop)

    def setUp(self):
        self.tiny = self.id().split(".")[-1]  # the run
        if not self.shared:
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            self.folder = folder.name
            self.daemon = Daemon(self.folder)
            self.addCleanup(self.daemon.stop)

    def session(self, run=None, **options):
        options = {"socket": self.daemon.socket, "arena_bytes": ARENA, "slab_bytes": SLAB,
                   "timeout": TIMEOUT, **options}
        session = ckptd.Session(run or self.tiny, **options)
        self.addCleanup(session.close)
        return session

    def joined(self, units=None, **options):
        """A session of one rank that has joined: (session, epoch)."""
        session = self.session(**options)
        session.register(units or [unit("layers.0"), unit("layers.1")])
        return session, session.join()


def unit(name, elements=1000):
    return ckptd.Unit(name, (ckptd.Tensor("w", "F32", (elements,)),))


def floats(value, elements=1000):
    return array.array("f", [value] * elements)


def save(epoch, step, values):
    """Saves {unit: data} and returns when the step is durable."""
    with epoch.begin(step) as snapshot:
        for name, data in values.items():
            snapshot.write(name, data)
    return snapshot.wait(timeout=TIMEOUT)


class Alarm(Exception):
    """Exception raised by the Python signal handler of alarm_after."""


class alarm_after:
    """Raises Alarm from a signal handler, in the main thread, after so many seconds."""

    def __init__(self, seconds):
        self._seconds = seconds

    def __enter__(self):
        def ring(*_):
            raise Alarm
        self._before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        return False


def forked(body):
    """Runs `body` in a forked child; returns the text of its result or of its exception."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(body())
        except BaseException as error:  # reported to the parent
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        said = told.read().decode()
    os.waitpid(child, 0)
    return said
