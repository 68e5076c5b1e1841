"""Helpers of the tests that need PyTorch: ranks as forked processes, and a daemon for a class."""

import contextlib
import os
import pathlib
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import support  # noqa: E402
from support import ROOT, ckptd  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.tensor  # noqa: E402,F401
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

TIMEOUT = float(os.environ.get("CKPTD_TEST_TIMEOUT", "240"))
ARENA = 32 << 20


def ranks(size, body, *arguments):
    """Runs body(rank, *arguments) in forked processes with a gloo group; returns the results by
    rank. A rank that raises fails the test with its traceback."""
    with tempfile.TemporaryDirectory() as folder:
        children = [_fork(rank, size, folder, body, arguments) for rank in range(size)]
        try:
            said = _collect({reader: rank for rank, (_, reader) in enumerate(children)})
        finally:
            for child, reader in children:
                os.close(reader)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    results = [pickle.loads(said[rank]) if said.get(rank) else (False, "died or hung")
               for rank in range(size)]
    wrong = [f"rank {rank}: {result}" for rank, (good, result) in enumerate(results) if not good]
    if wrong:
        raise AssertionError("\n".join(wrong))
    return [result for _, result in results]


def _fork(rank, size, folder, body, arguments):
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    os.close(reader)
    try:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank,
                                world_size=size)
        result = (True, body(rank, *arguments))
    except BaseException:  # reported to the parent
        result = (False, traceback.format_exc())
    with os.fdopen(writer, "wb") as told:
        told.write(pickle.dumps(result))
    os._exit(0)  # an orderly end of gloo could wait for a rank that has failed


def _collect(readers):
    said = {rank: b"" for rank in readers.values()}
    end = time.monotonic() + TIMEOUT
    waiting = dict(readers)
    while waiting and time.monotonic() < end:
        ready, _, _ = select.select(list(waiting), [], [], 1.0)
        for reader in ready:
            data = os.read(reader, 1 << 16)
            if data:
                said[waiting[reader]] += data
            else:
                del waiting[reader]
    return said


def processes(program, size, folder=None, **environment):
    """A process per rank, as torchrun starts them, with pipes for what they print."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    path = [] if "CKPTD_INSTALLED" in os.environ else [str(ROOT / "client" / "python")]
    return [subprocess.Popen(
        [sys.executable, *program], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1",
             "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **environment})
        for rank in range(size)]


@contextlib.contextmanager
def killed_after_timeout(jobs):
    """Ends processes that take longer than TIMEOUT, so that reading what they print ends, too: a
    rank whose peer has failed waits for it much longer than a test may."""
    timer = threading.Timer(TIMEOUT, lambda: [job.kill() for job in jobs])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class StoreTest(unittest.TestCase):
    """One daemon of `ckptd.local` for all tests of a class; `run` is each test's own run."""

    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()  # enterClassContext is not in Python 3.10
        cls.addClassCleanup(stack.close)
        cls.folder = stack.enter_context(tempfile.TemporaryDirectory())
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = cls.folder
        stack.callback(os.environ.update if before else os.environ.pop,
                       {"XDG_RUNTIME_DIR": before} if before else "XDG_RUNTIME_DIR")
        stack.enter_context(ckptd.local(os.path.join(cls.folder, "store"), arena="512MiB"))

    @property
    def tiny(self):
        return self.id().split(".")[-1]


def saver(run, **options):
    return ckptd.Saver(run, **{"arena_bytes": ARENA, "slab_bytes": 1 << 20, "timeout": TIMEOUT,
                               "values_bytes": 64 << 10, **options})


def filled(shape, seed, dtype=torch.float32):
    """A tensor whose bytes depend on the seed, the same on each rank."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.empty(shape, dtype=dtype).numel() * torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 255, (count,), generator=generator, dtype=torch.uint8)
    if dtype.is_floating_point and dtype.itemsize > 1:
        return torch.randn(shape, generator=generator).to(dtype)
    return raw.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)


def same(one, other):
    """Bit-equal, also for dtypes that torch.equal does not take."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = kinds[one.element_size()]
    return one.dtype == other.dtype and torch.equal(
        one.detach().contiguous().view(kind), other.detach().contiguous().view(kind))


def zeroed(state):
    """The same nested state with zeros in its tensors, sharded alike."""
    if isinstance(state, dict):
        return {key: zeroed(value) for key, value in state.items()}
    if isinstance(state, torch.Tensor):
        with torch.no_grad():
            return torch.zeros_like(state)
    return None


def mesh(*shape, names=None):
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def killing(daemon, method, calls):
    """Kills the daemon right after that many calls of a method of Snapshot."""
    return after_calls(method, calls, lambda: daemon.stop(signal.SIGKILL))


@contextlib.contextmanager
def after_calls(method, calls, action):
    """Does something right after that many calls of a method of Snapshot."""
    left = [calls]
    original = getattr(ckptd.Snapshot, method)

    def call(snapshot, *arguments):
        original(snapshot, *arguments)
        left[0] -= 1
        if left[0] == 0:
            action()
    setattr(ckptd.Snapshot, method, call)
    try:
        yield
    finally:
        setattr(ckptd.Snapshot, method, original)


@contextlib.contextmanager
def two_ranks_one_dies():
    """save(rank, call) for a body of two ranks; `call` saves and returns the Pending. Rank 1 is
    killed once it has copied tensors and rank 0's call has returned. Rank 0 then sees its save
    fail, and goes on."""
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "saved")
        os.mkfifo(fifo)

        def save(rank, call):
            if rank == 1:
                _die_at_the_next_write(fifo)
            pending = call()
            with open(fifo, "w", encoding="ascii"):
                pass
            try:
                pending.durable(TIMEOUT)
            except ckptd.Error:
                return
            raise AssertionError("saved, though rank 1 has died")
        yield save


def _die_at_the_next_write(fifo):
    write = ckptd.Snapshot.write_pieces

    def dying(snapshot, *arguments):
        write(snapshot, *arguments)
        with open(fifo, encoding="ascii"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    ckptd.Snapshot.write_pieces = dying
