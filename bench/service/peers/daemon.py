"""The ckptd of a subject, in the subject's process group, on a store of its own."""

import signal
import subprocess
import time

import ckptd
from ckptd import _library

ALIGN = 2 << 20
ARENA_LEAST = 16 << 20
READY_MAX = 120.0
POLL = 0.05


def arena_of_rank(share):
    """Memory for one snapshot of a rank, which has 1 MiB of values beside its tensors: ckptd keeps
    two of at least 32 slabs for restores, and the last slab is partly empty."""
    return max(-(-(share + (1 << 20)) * 7 // 6 // ALIGN) * ALIGN, ARENA_LEAST)


class Daemon:
    def __init__(self, group, ranks, count):
        self._group = group
        self._arena = arena_of_rank(count // ranks)
        self._ranks = ranks
        self._process = None
        self._log = group.folder / "ckptd.log"
        self.socket = group.short_path("ckptd.sock")
        self.arena_bytes = self._arena * ranks
        self._config = group.folder / "ckptd.toml"
        # Memory as docs/operations.md says; no scrub, so that only the measured work uses the disk.
        self._config.write_text(
            f'arena = "{self.arena_bytes}"\nsession_arena = "{self._arena}"\n'
            f'warm_pool = "{self.arena_bytes}"\nscrub_rate = "0"\n', encoding="utf-8")

    def start(self):
        self._process = self._group.start(
            [_library.program_path("ckptd"), "--config", str(self._config), "--data",
             str(self._group.folder / "store"), "--listen", "unix:" + self.socket], self._log,
            stdin=subprocess.DEVNULL)
        self._wait("is not ready", self._answers)

    def wait_warm(self):
        """Waits until all memory is prepared for the ranks."""
        self._wait("has not prepared its memory", lambda: self._status()["warm_pool_bytes"] >=
                   self.arena_bytes)

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(READY_MAX)
        except subprocess.TimeoutExpired:
            self._group.fail(f"ckptd has not drained in {READY_MAX:.0f} s", self._log)

    def _status(self):
        with ckptd.Session(socket=self.socket, run="bench", control=True) as asker:
            return asker.query("status")

    def _answers(self):
        try:
            return bool(self._status())
        except ckptd.Error:
            return False

    def _wait(self, what, good):
        end = time.monotonic() + READY_MAX
        while not good():
            if self._process.poll() is not None:
                self._group.fail(f"ckptd has ended with {self._process.returncode}", self._log)
            if time.monotonic() >= end:
                self._group.fail(f"ckptd {what} after {READY_MAX:.0f} s", self._log)
            time.sleep(POLL)
