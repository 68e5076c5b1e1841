"""CUDA tensors into the arena of a session, which is pinned at the first one.

The copy engine of the device fills places of the arena, on the current stream of the calling
thread. Threads that live as long as the copies compute the CRC32C of what has arrived.

Python costs about 0.2 ms per piece, all threads together and one at a time. A link of 55 GB/s moves
10 MB meanwhile, so pieces are larger. The last ones are small: save() waits for their checksums."""

import collections
import contextlib
import ctypes
import logging
import os
import queue
import threading
import weakref
from typing import Any, Deque, List, Optional, Sequence, Tuple

import torch

from . import _abi, errors
from .session import Session
from .snapshot import Snapshot

PIN_BYTES_MAX = 4 << 30  # of one call of cudaHostRegister
PIECE_BYTES_MIN, PIECE_BYTES_MAX = 4 << 20, 32 << 20  # copied, checked, handed over at a time
PIECES_AHEAD = 8  # known before one is copied: the end of a save is seen before it comes
WINDOW_BYTES = 1 << 30  # on the way at most
DEVICE_SECONDS = 60.0  # for one batch to arrive, as in libckpt_cuda
CHECKERS_MAX = 12  # threads for checksums; each reads 5 to 10 GB/s, and a link has 55
_PLAIN = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PORTABLE = 1  # cudaHostRegisterPortable: pinned for all devices
_log = logging.getLogger("ckptd.device")


def plain(data: Any) -> Any:
    """The tensor as one of integers of its item size, which all operations take."""
    return data.detach().view(_PLAIN[data.element_size()])


def parts(size: int, slab: int) -> List[Tuple[int, int]]:
    """(offset, bytes) of what is pinned at a time: whole slabs, since no copy may cross two."""
    most = max(PIN_BYTES_MAX // slab, 1) * slab
    return [(at, min(most, size - at)) for at in range(0, size, most)]


def piece_bytes(ahead: int, most: int) -> int:
    """Bytes of the next piece. Pieces are smaller once few bytes are left to copy."""
    share = ahead // PIECES_AHEAD & -PIECE_BYTES_MIN
    return min(max(share, PIECE_BYTES_MIN), most)


class Arena:
    """The mapped arena of a session. `pinned` is False before `pin`, and if CUDA has refused."""

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self._bytes = _host_bytes(address, size)
        self._parts: List[int] = []
        self.pinned = False

    def pin(self, slab: int) -> None:
        self.pinned = self._pin(slab)

    def _pin(self, slab: int) -> bool:
        for offset, length in parts(self.size, slab):
            at = self.address + offset
            code = int(torch.cuda.cudart().cudaHostRegister(at, length, _PORTABLE))
            if code:
                self.release()
                _forget_error()
                _log.warning(
                    "pinning the arena: cudaHostRegister of %d of %d MiB: CUDA error %d; tensors "
                    "on a GPU are copied through a buffer, which is slower: free memory of the "
                    "host, or ask for a smaller arena_bytes", length >> 20, self.size >> 20, code)
                return False
            self._parts.append(at)
        return True

    def release(self) -> None:
        """Unpins it; before it is unmapped."""
        while self._parts:
            if int(torch.cuda.cudart().cudaHostUnregister(self._parts.pop())):
                _forget_error()

    def host(self, address: int, length: int) -> Any:
        """The bytes as a tensor."""
        offset = address - self.address
        if 0 <= offset <= self.size - length:
            return self._bytes[offset:offset + length]
        return _host_bytes(address, length)  # a new daemon has brought another arena


def _host_bytes(address: int, length: int) -> Any:
    return torch.frombuffer((ctypes.c_ubyte * length).from_address(address), dtype=torch.uint8)


def _forget_error() -> None:
    """Takes the error that a failed call has left; the next kernel would raise it otherwise."""
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device="cuda")


_arenas: "weakref.WeakKeyDictionary[Any, Arena]" = weakref.WeakKeyDictionary()


def arena_of(session: Session) -> Arena:
    """The session's arena. Pins it at the first call, until the session is closed."""
    handle = session.handle()
    size = ctypes.c_uint64()
    pointer = handle.check_usable()
    address = handle.library.ckpt_arena(pointer, ctypes.byref(size)) or 0
    known = _arenas.get(handle)
    if known is None or known.address != address:
        known = Arena(address, size.value)
        handle.before_close.append(known.release)  # before it is pinned: an interrupt may come
        _arenas[handle] = known
        known.pin(handle.library.ckpt_slab_bytes(pointer))
    return known


def pinned_bytes(size: int) -> Any:
    """Pinned memory of the host; ordinary memory if CUDA has none."""
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:
        _forget_error()
        return torch.empty(size, dtype=torch.uint8)


class _Batch:
    """Places that are copied one after the other, from one device."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.places: List[_abi.ckpt_place] = []
        self.bytes = 0
        self.copied = torch.cuda.Event(blocking=True)
        self.queued = False
        self.settled = False  # nothing writes into the places any more
        self.sums: List[int] = []  # once the bytes have arrived
        self.failure: Optional[BaseException] = None
        self._checking = threading.Lock()  # cheaper than an Event, and an interrupt ends its wait
        self._checking.acquire()

    def check(self, crc32c: Any) -> None:
        """Computes the sums, in a thread for checksums."""
        try:
            with torch.cuda.device(self.device):  # no context of device 0 for this thread
                self.copied.synchronize()
            self.sums = [crc32c(place.data, place.length, 0) for place in self.places]
        except BaseException as error:
            self.failure = error
        finally:
            self._checking.release()

    def wait(self) -> None:
        """Until nothing writes into the places any more."""
        if self.settled:
            return
        if self.queued:
            if not self._checking.acquire(timeout=DEVICE_SECONDS):
                raise errors.DeadlineExceeded(
                    f"{self.device}: a copy of {self.bytes >> 20} MiB into the arena is not done "
                    f"after {DEVICE_SECONDS:.0f} s: the device hangs, or other work is queued "
                    "before the copy; synchronize the device before save()")
        else:
            with contextlib.suppress(RuntimeError):  # queueing it has failed
                torch.cuda.synchronize(self.device)
        self.settled = True


class Copies:
    """Copies of one snapshot. Nothing reads the tensors any more once `close` has returned."""

    def __init__(self, snapshot: Snapshot, arena: Arena) -> None:
        self._snapshot = snapshot
        self._arena = arena
        self._crc32c = snapshot.session.handle().library.ckpt_crc32c
        # Less than the arena: slabs that are on the way cannot be used again.
        self._window = min(WINDOW_BYTES, arena.size // 4)
        self._piece_max = min(PIECE_BYTES_MAX, self._window // 2)
        self._threads_max = max(min(CHECKERS_MAX, len(os.sched_getaffinity(0)) * 3 // 4), 1)
        self._threads = 0
        self._queued: "queue.SimpleQueue[Optional[_Batch]]" = queue.SimpleQueue()
        self._ahead: Deque[Tuple[int, int, Any]] = collections.deque()  # unit, offset, bytes
        self._ahead_bytes = 0
        self._batch: Optional[_Batch] = None
        self._on_the_way: Deque[_Batch] = collections.deque()
        self._bytes = 0
        self._hangs = False  # the device: its places stay lent

    def write(self, unit: int, data: Any, length: int, starts: Sequence[int], offset: int) -> None:
        """Like transfer.write, for contiguous memory of a device. `flush` copies the last ones."""
        item = data.element_size()
        run = length * item
        source = plain(data).reshape(-1).view(torch.uint8)
        for turn, start in enumerate(starts):
            self._ahead.append((unit, offset + start * item, source[turn * run:(turn + 1) * run]))
            self._ahead_bytes += run
            while self._ahead_bytes > PIECES_AHEAD * self._piece_max:
                self._copy_next()

    def flush(self) -> None:
        """Queues the copies of all that was written."""
        while self._ahead:
            self._copy_next()
        self._queue()

    def _copy_next(self) -> None:
        unit, offset, source = self._ahead.popleft()
        size = source.numel()
        piece = piece_bytes(self._ahead_bytes, self._piece_max)
        if self._batch is not None and self._batch.device != source.device:
            self._queue()
        if self._batch is None:
            self._batch = _Batch(source.device)
        batch = self._batch
        place = self._snapshot.reserve(unit, offset, min(size, piece))
        batch.places.append(place)
        batch.bytes += place.length
        self._ahead_bytes -= place.length
        if place.length < size:
            self._ahead.appendleft((unit, offset + place.length, source[place.length:]))
            source = source[:place.length]
        self._arena.host(place.data, place.length).copy_(source, non_blocking=True)
        if batch.bytes >= piece:
            self._queue()
        while self._bytes > self._window:
            self._hand_over()

    def _queue(self) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        self._on_the_way.append(batch)
        self._bytes += batch.bytes
        batch.copied.record(torch.cuda.current_stream(batch.device))
        if self._threads < self._threads_max:
            self._start_thread()
        self._queued.put(batch)
        batch.queued = True

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._check, name="ckptd", daemon=True).start()
        except RuntimeError:
            if not self._threads:
                raise
            self._threads_max = self._threads  # those that there are do it
            return
        self._threads += 1

    def _check(self) -> None:
        while True:
            batch = self._queued.get()
            if batch is None:
                return
            batch.check(self._crc32c)

    def _hand_over(self) -> None:
        """Gives the places of the oldest batch back: all of them, whatever fails meanwhile."""
        batch = self._on_the_way.popleft()
        self._bytes -= batch.bytes
        with contextlib.ExitStack() as stack:
            for number, place in enumerate(batch.places):
                stack.callback(self._fill, batch, number, place)
            # The first callback to run: an interrupt must not give back what is being filled.
            stack.callback(self._settle, batch)
            self._settle(batch)
            if batch.failure is not None:
                raise batch.failure

    def _settle(self, batch: _Batch) -> None:
        """Waits for the batch; not again for a device that has let the time pass once."""
        if self._hangs:
            return
        try:
            batch.wait()
        except errors.DeadlineExceeded:
            self._hangs = True
            raise

    def _fill(self, batch: _Batch, number: int, place: _abi.ckpt_place) -> None:
        # A second interrupt or the time-out ends the wait. The place stays lent then: the device
        # may still fill it.
        if batch.settled:
            # Without its sum the device has failed, and the snapshot is aborted.
            self._snapshot.filled(place, batch.sums[number] if batch.sums else 0)

    def close(self) -> None:
        """Waits for the device and gives all places back; raises what has failed."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._stop)
            try:
                self._queue()
            finally:
                for _ in self._on_the_way:
                    stack.callback(self._hand_over)

    def _stop(self) -> None:
        """Ends the threads, which have nothing left to check."""
        for _ in range(self._threads):
            self._queued.put(None)
