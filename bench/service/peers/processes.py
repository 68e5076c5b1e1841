"""Processes of one subject, in a process group of their own: ranks, and the ckptd if it has one."""

import functools
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

import memory

HERE = pathlib.Path(__file__).resolve().parent
ANSWER_MAX = 600.0  # seconds that a command of a rank may take
STOP_MAX = 60.0
LOG_TAIL = 2000  # characters of a log that an error shows


class Failed(Exception):
    """The reason why a subject was not measured to its end; names the subject."""


def tail(path):
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return text[-LOG_TAIL:].strip()


class Group:
    """Ends all its processes when its block is left."""

    def __init__(self, name, folder):
        self.name = name
        self.folder = pathlib.Path(folder)
        self.pids = []  # of the ranks
        self._group = 0  # of all processes; 0: there is none yet
        self._children = []
        self._ranks = []
        self._short = tempfile.TemporaryDirectory(prefix="ckptd-")

    def short_path(self, name):
        """A path that is short enough for a socket, removed with the group."""
        return os.path.join(self._short.name, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._group:
            try:
                os.killpg(self._group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for child, reader in self._ranks:
            child.stdin.close()
            reader.close()
        for child in self._children:
            child.wait(STOP_MAX)
        self._short.cleanup()

    def fail(self, reason, log=None):
        said = tail(log) if log else ""
        raise Failed(f"subject {self.name}: {reason}" + (f"\n{said}" if said else ""))

    def start(self, arguments, log, **options):
        with open(log, "ab") as file:
            child = subprocess.Popen(
                arguments, stdout=file, stderr=file, cwd=self.folder,
                preexec_fn=functools.partial(os.setpgid, 0, self._group), **options)
        self._group = self._group or child.pid
        self._children.append(child)
        return child

    def start_ranks(self, ranks, count, seed, environment):
        for rank in range(ranks):
            reader, writer = os.pipe()
            arguments = [sys.executable, str(HERE / "rank.py"), "--subject", self.name, "--folder",
                         str(self.folder), "--rank", str(rank), "--ranks", str(ranks), "--bytes",
                         str(count), "--seed", str(seed), "--answers", str(writer)]
            child = self.start(
                arguments, self._log(rank), stdin=subprocess.PIPE, pass_fds=[writer],
                env={**os.environ, **environment, "RANK": str(rank), "LOCAL_RANK": str(rank),
                     "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
                     "MASTER_ADDR": "127.0.0.1"})
            os.close(writer)
            self._ranks.append((child, os.fdopen(reader, "rb", buffering=0)))
            self.pids.append(child.pid)

    def _log(self, rank):
        return self.folder / f"rank-{rank}.log"

    def tell(self, what, step=0):
        line = json.dumps({"do": what, "step": step}).encode() + b"\n"
        for rank, (child, _) in enumerate(self._ranks):
            try:
                child.stdin.write(line)
                child.stdin.flush()
            except BrokenPipeError:
                self.fail(f"rank {rank} has ended", self._log(rank))

    def answers(self, meanwhile=None):
        """One answer of each rank; calls `meanwhile` again and again until all are there."""
        said = [b""] * len(self._ranks)
        waiting = {reader.fileno(): rank for rank, (_, reader) in enumerate(self._ranks)}
        end = time.monotonic() + ANSWER_MAX
        while waiting:
            left = end - time.monotonic()
            if left <= 0:
                rank = min(waiting.values())
                self.fail(f"rank {rank} has not answered in {ANSWER_MAX:.0f} s", self._log(rank))
            for reader in select.select(list(waiting), [], [], 0 if meanwhile else left)[0]:
                rank = waiting[reader]
                said[rank] += os.read(reader, 1 << 16)
                if not said[rank].endswith(b"\n"):
                    self.fail(f"rank {rank} has ended", self._log(rank))
                del waiting[reader]
                answer = json.loads(said[rank])
                if "error" in answer:
                    self.fail(f"rank {rank}: {answer['error']}", self._log(rank))
            if meanwhile and waiting:
                meanwhile()
        return [json.loads(line) for line in said]

    def ask(self, what, step=0):
        self.tell(what, step)
        return self.answers()

    def pss(self):
        return memory.pss(memory.members(self._group))

    def cpu_seconds(self):
        return memory.cpu_seconds(memory.members(self._group))
