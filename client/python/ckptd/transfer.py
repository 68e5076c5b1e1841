"""Copies between tensors and a run: what is not contiguous memory of the host goes through one
buffer of 16 MiB."""

import ctypes
import zlib
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import torch

from . import errors
from .boxes import product
from .buffers import _TORCH, Memory

BUFFER_BYTES = 16 << 20
RANGES_MAX = 1 << 16  # of one restore; ckptd takes twice as many
_PLAIN = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
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
    """Bounded host memory for copies; allocated at the first use."""

    def __init__(self) -> None:
        self._bytes: Any = None

    def chunks(self, data: Any) -> Iterator[Tuple[int, int, Any, Any]]:
        """(first element, elements, contiguous host tensor, view of `data` to copy), in row-major
        order. The view is None if the host tensor is `data` itself."""
        data = data.detach().view(_PLAIN[data.element_size()])
        return self._chunks(data, 0)

    def _chunks(self, data: Any, at: int) -> Iterator[Tuple[int, int, Any, Any]]:
        count = data.numel()
        if count == 0:
            return
        if data.device.type == "cpu" and data.is_contiguous():
            yield at, count, data, None
            return
        room = BUFFER_BYTES // data.element_size()
        if count <= room:
            if self._bytes is None:
                self._bytes = torch.empty(BUFFER_BYTES, dtype=torch.uint8)
            flat = self._bytes[:count * data.element_size()].view(data.dtype)
            yield at, count, flat.view(data.shape), data
            return
        row = product(data.shape[1:])
        step = max(room // row, 1)
        for begin in range(0, data.shape[0], step):
            part = data[begin:begin + step]
            yield from self._chunks(part if row <= room else part[0], at + begin * row)

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
