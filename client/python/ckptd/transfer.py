"""Copies between tensors and a run. Contiguous memory of the host is read and written where it is;
contiguous memory of a GPU is copied into the arena (`device`); the rest goes through one buffer of
16 MiB."""

import ctypes
import zlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from . import device, errors
from .boxes import product
from .buffers import _TORCH, Memory
from .device import plain
from .snapshot import Snapshot

BUFFER_BYTES = 16 << 20
RUN_BYTES_MIN = 64 << 10  # of a GPU's memory; shorter ones of one tensor share the buffer
RANGES_MAX = 1 << 16  # of one restore; ckptd takes twice as many
_DTYPES = {name: getattr(torch, dtype) for dtype, name in _TORCH.items() if hasattr(torch, dtype)}


def torch_dtype(name: str) -> Any:
    if name not in _DTYPES:
        raise errors.InvalidArgument(f"dtype {name}: this PyTorch does not have it; upgrade it")
    return _DTYPES[name]


def name_of(dtype: Any) -> str:
    """The name of a torch.dtype in safetensors; empty: it has none."""
    return _TORCH.get(str(dtype).split(".")[-1], "")


def dtype_name(tensor: Any) -> str:
    return name_of(tensor.dtype)


def check(data: Any, name: str) -> None:
    """Refuses what has no bytes of its own. `name` says which tensor of which rank."""
    if data.device.type == "meta":
        raise errors.InvalidArgument(
            f"{name}: it is on the meta device and has no bytes; materialize it first")
    if not dtype_name(data):
        raise errors.InvalidArgument(
            f"{name}: dtype {data.dtype} cannot be stored; convert it, or save its parts")
    if data.layout != torch.strided:
        raise errors.InvalidArgument(
            f"{name}: layout {data.layout} has no single memory; save its parts one by one")
    if data.is_conj() or data.is_neg():
        raise errors.InvalidArgument(
            f"{name}: a conjugated or negated view; pass tensor.resolve_conj().resolve_neg()")
    try:
        address = data.data_ptr()
    except RuntimeError:
        address = 0
    if address == 0 and data.numel():
        raise errors.InvalidArgument(
            f"{name}: {type(data).__name__} has no storage of its own; save its inner tensors")


class Buffer:
    """Bounded host memory for copies, pinned for those of a GPU; allocated at the first use."""

    def __init__(self) -> None:
        self._bytes: Dict[str, Any] = {}  # by kind of device

    def chunks(self, data: Any) -> Iterator[Tuple[int, int, Any, Any]]:
        """(first element, elements, contiguous host tensor, view of `data` to copy), in row-major
        order. The view is None if the host tensor is `data` itself."""
        return self._chunks(plain(data), 0)

    def _chunks(self, data: Any, at: int) -> Iterator[Tuple[int, int, Any, Any]]:
        count = data.numel()
        if count == 0:
            return
        if data.device.type == "cpu" and data.is_contiguous():
            yield at, count, data, None
            return
        room = BUFFER_BYTES // data.element_size()
        if count <= room:
            flat = self._room(data.device.type)[:count * data.element_size()].view(data.dtype)
            yield at, count, flat.view(data.shape), data
            return
        row = product(data.shape[1:])
        step = max(room // row, 1)
        for begin in range(0, data.shape[0], step):
            part = data[begin:begin + step]
            yield from self._chunks(part if row <= room else part[0], at + begin * row)

    def _room(self, kind: str) -> Any:
        if kind not in self._bytes:
            self._bytes[kind] = device.pinned_bytes(BUFFER_BYTES) if kind == "cuda" else (
                torch.empty(BUFFER_BYTES, dtype=torch.uint8))
        return self._bytes[kind]

    def crc(self, data: Any) -> int:
        """CRC of the elements in row-major order."""
        value = 0
        for _, count, host, source in self.chunks(data):
            if source is not None:
                host.copy_(source)
            size = count * host.element_size()
            value = zlib.crc32((ctypes.c_char * size).from_address(host.data_ptr()), value)
        return value


def write(put: Callable[[int, int, int], None], data: Any, length: int, starts: Sequence[int],
          offset: int, buffer: Buffer) -> None:
    """Calls put(offset in the unit, address, bytes) for each run of a piece. `starts` are first
    elements of the runs, `length` their elements, `offset` the byte where the tensor begins."""
    item = data.element_size()
    for at, count, host, source in buffer.chunks(data):
        if source is not None:
            host.copy_(source)
        address = host.data_ptr()
        for turn in range(at // length, -(-(at + count) // length)):
            begin = max(turn * length, at)
            end = min((turn + 1) * length, at + count)
            put(offset + (starts[turn] + begin - turn * length) * item,
                address + (begin - at) * item, (end - begin) * item)


class Writer:
    """Writes tensors into one snapshot. They may be changed after the end of its block."""

    def __init__(self, snapshot: Snapshot, buffer: Buffer) -> None:
        self._snapshot = snapshot
        self._buffer = buffer
        self._copies: Optional[device.Copies] = None

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        copies, self._copies = self._copies, None
        if copies is None:
            return
        try:
            copies.close()
        except BaseException:
            if kind is None:
                raise  # else the block's own exception says why

    def write(self, unit: int, data: Any, length: int, starts: Sequence[int], offset: int) -> None:
        """Writes the runs of a piece into the unit of that number: see `write` of this module."""
        if self._is_direct(data, length, starts):
            assert self._copies is not None
            self._copies.write(unit, data, length, starts, offset)
            return

        def put(at: int, address: int, size: int) -> None:
            self._snapshot.write_at(unit, at, address, size)
        write(put, data, length, starts, offset, self._buffer)

    def _is_direct(self, data: Any, length: int, starts: Sequence[int]) -> bool:
        """True if the copy engine of a GPU can fill the arena with the data."""
        if data.device.type != "cuda" or not data.is_contiguous() or (
                len(starts) > 1 and length * data.element_size() < RUN_BYTES_MIN):
            return False
        if self._copies is None:
            arena = device.arena_of(self._snapshot.session)
            if arena.pinned:
                self._copies = device.Copies(self._snapshot, arena)
        return self._copies is not None


class Reader:
    """Collects ranges of units and reads them in batches. `read` gets (unit, offset, memory)."""

    def __init__(self, read: Callable[[List[Tuple[str, int, Memory]]], List[Any]],
                 buffer: Buffer) -> None:
        self._read = read
        self._buffer = buffer
        self._ranges: List[Tuple[str, int, Memory]] = []
        self.restored: List[Any] = []

    def add(self, unit: str, data: Any, length: int, starts: Sequence[int], offset: int) -> None:
        item = data.element_size()
        for at, count, host, source in self._buffer.chunks(data):
            address = host.data_ptr()
            for turn in range(at // length, -(-(at + count) // length)):
                begin = max(turn * length, at)
                end = min((turn + 1) * length, at + count)
                self._ranges.append(
                    (unit, offset + (starts[turn] + begin - turn * length) * item,
                     Memory(address + (begin - at) * item, (end - begin) * item, False, data)))
                if len(self._ranges) == RANGES_MAX:
                    self.flush()
            if source is not None:  # the buffer is reused: read it now
                self.flush()
                with torch.no_grad():
                    source.copy_(host)

    def flush(self) -> None:
        ranges, self._ranges = self._ranges, []
        if ranges:
            self.restored += self._read(ranges)
