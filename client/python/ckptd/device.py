"""CUDA tensors into the arena of a session, which is pinned at the first one.

The copy engine of the device fills places of the arena, on the current stream of the calling
thread. Threads that live as long as the copies compute the CRC32C of what has arrived."""

import collections
import concurrent.futures
import contextlib
import ctypes
import logging
import os
import weakref
from typing import Any, Deque, List, Optional, Sequence, Tuple

import torch

from . import _abi, errors
from .session import Session
from .snapshot import Snapshot

PIN_BYTES_MAX = 4 << 30  # of one call of cudaHostRegister
PIECE_BYTES = 8 << 20  # copied, checked and handed over at a time
WINDOW_BYTES = 256 << 20  # on the way at most
CHECKERS_MAX = 8  # threads for checksums; as fast as the link of a GPU
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


class Arena:
    """The mapped arena of a session. `pinned` is False if CUDA has refused."""

    def __init__(self, address: int, size: int, slab: int) -> None:
        self.address = address
        self.size = size
        self._bytes = _host_bytes(address, size)
        self._parts: List[int] = []
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
            torch.cuda.cudart().cudaHostUnregister(self._parts.pop())

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
        known = Arena(address, size.value, handle.library.ckpt_slab_bytes(pointer))
        _arenas[handle] = known
        handle.before_close.append(known.release)
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
        self.sums: List[int] = []  # once the bytes have arrived
        self.copied = torch.cuda.Event(blocking=True)
        self.checked: Optional["concurrent.futures.Future[None]"] = None


class Copies:
    """Copies of one snapshot. Nothing reads the tensors any more once `close` has returned."""

    def __init__(self, snapshot: Snapshot, arena: Arena) -> None:
        self._snapshot = snapshot
        self._arena = arena
        self._crc32c = snapshot.session.handle().library.ckpt_crc32c
        # Less than the arena: slabs that are on the way cannot be used again.
        self._window = min(WINDOW_BYTES, arena.size // 4)
        cores = len(os.sched_getaffinity(0))
        self._threads = concurrent.futures.ThreadPoolExecutor(
            max(min(CHECKERS_MAX, cores // 2), 1), "ckptd")
        self._batch: Optional[_Batch] = None
        self._on_the_way: Deque[_Batch] = collections.deque()
        self._bytes = 0

    def write(self, unit: int, data: Any, length: int, starts: Sequence[int], offset: int) -> None:
        """Like transfer.write, for contiguous memory of a device."""
        item = data.element_size()
        run = length * item
        source = plain(data).reshape(-1).view(torch.uint8)
        for turn, start in enumerate(starts):
            done = 0
            while done < run:
                place = self._snapshot.reserve(unit, offset + start * item + done,
                                               min(run - done, PIECE_BYTES))
                begin = turn * run + done
                self._copy(source[begin:begin + place.length], place)
                done += place.length

    def _copy(self, source: Any, place: _abi.ckpt_place) -> None:
        if self._batch is not None and self._batch.device != source.device:
            self._queue()
        if self._batch is None:
            self._batch = _Batch(source.device)
        self._batch.places.append(place)
        self._batch.bytes += place.length
        self._arena.host(place.data, place.length).copy_(source, non_blocking=True)
        if self._batch.bytes >= PIECE_BYTES:
            self._queue()
        while self._bytes > self._window:
            self._hand_over()

    def _queue(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            self._on_the_way.append(batch)
            self._bytes += batch.bytes
            batch.copied.record(torch.cuda.current_stream(batch.device))
            batch.checked = self._threads.submit(self._check, batch)

    def _check(self, batch: _Batch) -> None:
        with torch.cuda.device(batch.device):  # no context of device 0 for this thread
            batch.copied.synchronize()
        batch.sums = [self._crc32c(place.data, place.length, 0) for place in batch.places]

    def _hand_over(self) -> None:
        """Gives the places of the oldest batch back: all of them, whatever fails meanwhile."""
        batch = self._on_the_way.popleft()
        self._bytes -= batch.bytes
        with contextlib.ExitStack() as stack:
            for number, place in enumerate(batch.places):
                stack.callback(self._fill, batch, number, place)
            if batch.checked is not None:
                # The first callback to run: an interrupt must not give back what is being filled.
                stack.callback(concurrent.futures.wait, [batch.checked])
                batch.checked.result()

    def _fill(self, batch: _Batch, number: int, place: _abi.ckpt_place) -> None:
        # Without its sum the device has failed, and the snapshot is aborted.
        self._snapshot.filled(place, batch.sums[number] if batch.sums else 0)

    def close(self) -> None:
        """Waits for the device and gives all places back; raises what has failed."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._threads.shutdown)
            try:
                self._queue()
            finally:
                for _ in self._on_the_way:
                    stack.callback(self._hand_over)
