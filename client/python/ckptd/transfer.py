"""Copies between tensors and a run. Contiguous memory of the host is read and written where it is;
contiguous memory of a GPU is copied into the arena (`device`); the rest goes through one buffer of
16 MiB, and restores into a GPU through one of 64 MiB."""

import array
import ctypes
import zlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from . import _abi, device, errors
from .boxes import WHOLE, Box, Piece, part_of_data, product, runs
from .buffers import _TORCH
from .device import plain
from .layout import Layout
from .restore import Restore, Restored
from .snapshot import Snapshot

BUFFER_BYTES = 16 << 20
READ_BYTES = 64 << 20  # of one read into a GPU's memory: a request to ckptd has costs of its own
RUN_BYTES_MIN = 64 << 10  # of a GPU's memory; shorter ones of one tensor share the buffer
ROOM_ALIGN = 64  # of a tensor in a buffer
RANGES_MAX = 1 << 16  # of one restore; ckptd takes twice as many
PIECES_MAX = 1 << 14  # in one call of libckpt
PIECE_WORDS = 4  # of a ckpt_piece, each of 64 bits: unit, offset, length, address
PLAIN = (torch.Tensor, torch.nn.Parameter)  # have memory where data_ptr says
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


def check_piece(piece: Piece, dtype: Any, name: str) -> None:
    """The same for a part of a tensor, which must be as large as its box and of that dtype."""
    check(piece.data, name)
    found = tuple(piece.data.shape)
    if piece.data.dtype != dtype or found != piece.box.sizes:
        raise errors.InvalidArgument(
            f"{name}: its part in memory is {piece.data.dtype} {list(found)}, not {dtype} "
            f"{list(piece.box.sizes)}")


class Buffer:
    """Bounded host memory for copies, pinned for those of a GPU; allocated at the first use."""

    def __init__(self, pinned_bytes: int = BUFFER_BYTES) -> None:
        self._pinned_bytes = pinned_bytes
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
            yield at, count, self.room(data, 0), data
            return
        row = product(data.shape[1:])
        step = max(room // row, 1)
        for begin in range(0, data.shape[0], step):
            part = data[begin:begin + step]
            yield from self._chunks(part if row <= room else part[0], at + begin * row)

    def size(self, kind: str) -> int:
        return self._pinned_bytes if kind == "cuda" else BUFFER_BYTES

    def room(self, data: Any, begin: int) -> Any:
        """A contiguous host tensor like `data`, at that byte of the memory."""
        kind = data.device.type
        if kind not in self._bytes:
            self._bytes[kind] = device.pinned_bytes(self.size(kind)) if kind == "cuda" else (
                torch.empty(self.size(kind), dtype=torch.uint8))
        end = begin + data.numel() * data.element_size()
        return self._bytes[kind][begin:end].view(data.dtype).view(data.shape)

    def crc(self, data: Any) -> int:
        """CRC of the elements in row-major order."""
        value = 0
        for _, count, host, source in self.chunks(data):
            if source is not None:
                host.copy_(source)
            size = count * host.element_size()
            value = zlib.crc32((ctypes.c_char * size).from_address(host.data_ptr()), value)
        return value


def host_address(data: Any) -> int:
    """The address of contiguous memory of the host; 0: the tensor has none, or hides it."""
    if type(data) in PLAIN and data.is_cpu and data.is_contiguous():
        return data.data_ptr()
    return 0


def as_pieces(words: "array.array[int]") -> Any:
    """An array of ckpt_piece that shares the memory of its words."""
    count = len(words) // PIECE_WORDS
    return (_abi.ckpt_piece * count).from_buffer(words) if count else (_abi.ckpt_piece * 0)()


assert ctypes.sizeof(_abi.ckpt_piece) == PIECE_WORDS * 8  # the unit has a word, with zeros


def write(put: Callable[[int, int, int], None], flush: Callable[[], None], data: Any, length: int,
          starts: Sequence[int], offset: int, buffer: Buffer) -> None:
    """Calls put(offset in the unit, address, bytes) for each run of a piece, and flush before the
    memory at an address changes. `starts` are first elements of the runs, `length` their elements,
    `offset` the byte where the tensor begins."""
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
        if source is not None:
            flush()


class Writer:
    """Writes tensors into one snapshot, many pieces at a time. They may be changed after the end
    of its block."""

    def __init__(self, snapshot: Snapshot, buffer: Buffer) -> None:
        self._snapshot = snapshot
        self._buffer = buffer
        self._copies: Optional[device.Copies] = None
        self._words = array.array("Q")  # of pieces that are not written yet
        self._kept: List[Any] = []  # their memory

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        copies, self._copies = self._copies, None
        if copies is None:
            if kind is None:
                self._flush()
            return
        failed = True
        try:
            if kind is None:
                copies.flush()
                self._flush()
                failed = False
        finally:
            try:
                copies.close()
            except BaseException:
                if not failed:
                    raise  # else the first exception says why

    def write(self, unit: int, data: Any, length: int, starts: Sequence[int], offset: int) -> None:
        """Writes the runs of a piece into the unit of that number: see `write` of this module."""
        if self._is_direct(data, length, starts):
            assert self._copies is not None
            self._copies.write(unit, data, length, starts, offset)
            return

        def put(at: int, address: int, size: int) -> None:
            self._words.extend((unit, at, size, address))
            if len(self._words) >= PIECES_MAX * PIECE_WORDS:
                self._flush()
        self._kept.append(data)
        write(put, self._flush, data, length, starts, offset, self._buffer)

    def _flush(self) -> None:
        words, self._words = self._words, array.array("Q")
        if words:
            self._snapshot.write_pieces(as_pieces(words))

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
    """Collects ranges of a view and reads them in batches, into tensors."""

    def __init__(self, restore: Restore, timeout: float) -> None:
        self._restore = restore
        self._timeout = timeout
        self._buffer = Buffer(READ_BYTES)
        self._numbers: Dict[str, int] = {}  # of units
        self._words = array.array("Q")  # of ckpt_range: unit, offset, bytes, address
        self._names: List[str] = []  # of their units
        self._kept: List[Any] = []  # their memory
        self._copies: List[Tuple[Any, Any]] = []  # (target, its bytes in the buffer)
        self._used = 0  # bytes of the buffer
        self.restored: List[Restored] = []

    def add_box(self, layout: Layout, name: str, box: Box, data: Any) -> None:
        """Reads a box of a stored tensor into a tensor of the box's sizes."""
        address = host_address(data)
        item = data.element_size()
        row = product(box.sizes[1:]) * item
        last = None
        for place, shape, part, index, within in layout.parts(name, box):
            if part is not last:  # all slices of a stacked tensor mostly have the same
                last = part
                length, starts = runs(shape, part)
            if address and within == WHOLE:
                self._kept.append(data)
                at = address + (0 if index is None else index * row)
                for start in starts:
                    self._range(place.unit, place.offset + start * item, length * item, at)
                    at += length * item
            else:
                self.add(place.unit, part_of_data(data, index, within), length, starts,
                         place.offset)

    def add(self, unit: str, data: Any, length: int, starts: Sequence[int], offset: int) -> None:
        item = data.element_size()
        for at, count, host, target in self._buffer.chunks(data):
            begins = 0
            if target is not None:
                begins = self._begin(target)
                host = self._buffer.room(target, begins)
            address = host.data_ptr()
            self._kept.append(data)
            for turn in range(at // length, -(-(at + count) // length)):
                begin = max(turn * length, at)
                end = min((turn + 1) * length, at + count)
                self._range(unit, offset + (starts[turn] + begin - turn * length) * item,
                            (end - begin) * item, address + (begin - at) * item)
            if target is not None:
                self._copies.append((target, host))
                self._used = begins + count * item

    def _range(self, unit: str, offset: int, size: int, address: int) -> None:
        number = self._numbers.get(unit)
        if number is None:
            number = self._numbers[unit] = self._restore.session.unit(unit, self._restore.run)[0]
        self._words.extend((number, offset, size, address))
        self._names.append(unit)
        if len(self._names) == RANGES_MAX:
            self.flush()

    def _begin(self, target: Any) -> int:
        """First byte of the buffer's free room, once it is large enough for the target."""
        begin = -(-self._used // ROOM_ALIGN) * ROOM_ALIGN
        kind = target.device.type
        end = begin + target.numel() * target.element_size()
        other = self._copies and self._copies[0][0].device.type != kind
        if not other and end <= self._buffer.size(kind):
            return begin
        self.flush()
        return 0

    def flush(self) -> None:
        words, self._words = self._words, array.array("Q")
        names, self._names = self._names, []
        copies, self._copies = self._copies, []
        self._used = 0
        if names:
            self.restored += self._restore.read_words(words, names, self._timeout)
        self._kept = []
        with torch.no_grad():
            for target, host in copies:
                target.copy_(host)
