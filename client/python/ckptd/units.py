"""Units of a run's state, made of tensors."""

import array
import ctypes
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _abi, errors
from ._collector import paused
from ._convert import text, unsigned
from .buffers import Memory

# Bits of one element, by the names of safetensors.
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
    "F32": 32, "F64": 64, "I64": 64, "U64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
CODECS = {"default": _abi.CKPT_CODEC_DEFAULT, "none": _abi.CKPT_CODEC_NONE,
          "zstd": _abi.CKPT_CODEC_ZSTD, "delta": _abi.CKPT_CODEC_DELTA}


_ALL_BITS = (1 << 64) - 1


class Tensor(NamedTuple):
    """A tensor of a unit. offset: bytes from the start of the unit; None: behind the last one."""

    name: str
    dtype: str  # "F32", "BF16", "F8_E4M3", ...: a name of safetensors
    shape: Tuple[int, ...]
    offset: Optional[int] = None

    def nbytes(self) -> int:
        bits = DTYPE_BITS.get(self.dtype)
        if bits is None:
            raise errors.InvalidArgument(
                f"tensor {self.name}: dtype {self.dtype} is none of {', '.join(DTYPE_BITS)}")
        for extent in self.shape:
            if type(extent) is not int or extent < 0:
                extent = unsigned(extent, f"tensor {self.name}: extent")
            bits *= extent
        if bits % 8:
            raise errors.InvalidArgument(
                f"tensor {self.name}: {bits} bits are no whole number of bytes")
        return bits // 8


class Unit(NamedTuple):
    """Bytes that are saved and restored together: a layer, an expert, a part of either."""

    name: str
    tensors: Tuple[Tensor, ...] = ()
    bytes: Optional[int] = None  # None: up to the end of the last tensor
    layer: Optional[int] = None
    expert: Optional[int] = None
    part: Optional[str] = None  # "weights" or "optimizer"
    codec: str = "default"  # or "none", "zstd", "delta"
    constant: bool = False  # may stay unchanged from save to save without an alarm
    grown: bool = False  # the run got it after its first registration; read from the run alone

    @classmethod
    def of(cls, name: str, tensors: Mapping[str, Any], **options: Any) -> "Unit":
        """A unit with these arrays or torch tensors, one behind the other."""
        found = []
        for tensor, data in tensors.items():
            memory = Memory.of(data, f"unit {name} tensor {tensor}")
            if memory.dtype is None or memory.shape is None:
                raise errors.InvalidArgument(
                    f"unit {name} tensor {tensor}: its dtype is unknown; declare a ckptd.Tensor")
            found.append(Tensor(tensor, memory.dtype, memory.shape))
        return cls(name, tuple(found), **options)

    def placed(self) -> "Unit":
        """A copy of this unit with all offsets and the size filled in."""
        end = 0
        tensors = []
        for tensor in self.tensors:
            offset = end if tensor.offset is None else tensor.offset
            tensors.append(tensor if offset is tensor.offset else tensor._replace(offset=offset))
            end = max(end, offset + tensor.nbytes())
        return self._replace(tensors=tuple(tensors),
                             bytes=end if self.bytes is None else self.bytes)


class Fragment(NamedTuple):
    """Bytes of a unit that one rank saves."""

    rank: int
    unit: str
    offset: int
    length: int


def _number(unit: Unit, what: str, value: Optional[int]) -> int:
    """A layer or an expert; -1 for none."""
    return -1 if value is None else unsigned(value, f"unit {unit.name}: {what}", 31)


class _Texts:
    """Zero-terminated strings in one block of memory."""

    def __init__(self) -> None:
        self._offsets: Dict[str, int] = {}
        self._raw: List[bytes] = []
        self._size = 0
        self._block = b""

    def add(self, value: str, what: str) -> None:
        if value not in self._offsets:
            raw = text(value, what)
            self._offsets[value] = self._size
            self._raw.append(raw)
            self._size += len(raw) + 1

    def addresses(self) -> Dict[str, int]:
        """Once all are added. They are valid as long as this object."""
        self._block = b"\0".join(self._raw) + b"\0"
        first = ctypes.cast(self._block, ctypes.c_void_p).value or 0
        return {value: first + offset for value, offset in self._offsets.items()}


def _tensors_to_c(units: Sequence[Unit], texts: Mapping[str, int], keep: list) -> List[int]:
    """Address of the first ckpt_tensor of each unit. A run may have many thousands of tensors."""
    shapes = array.array("Q", (extent for unit in units for tensor in unit.tensors
                               for extent in tensor.shape))
    words = array.array("Q")
    firsts = []
    shape = shapes.buffer_info()[0]
    for unit in units:
        firsts.append(len(words) * 8)
        for tensor in unit.tensors:
            offset = unsigned(tensor.offset, "tensor: offset")
            words.extend((texts[tensor.name], texts[tensor.dtype], shape, len(tensor.shape),
                          offset))
            shape += len(tensor.shape) * 8
    keep += [shapes, words]
    return [words.buffer_info()[0] + first for first in firsts]


def _unit_to_c(unit: Unit, texts: Mapping[str, int], tensors: int) -> Tuple[int, ...]:
    """Words of a ckpt_unit."""
    layer, expert = _number(unit, "layer", unit.layer), _number(unit, "expert", unit.expert)
    return (texts[unit.name], layer & _ALL_BITS, expert & _ALL_BITS,
            0 if unit.part is None else texts[unit.part],
            unsigned(unit.bytes, f"unit {unit.name}: bytes"), tensors, len(unit.tensors))


def placed(units: Sequence[Unit]) -> List[Unit]:
    with paused():
        return [unit.placed() for unit in units]


@paused()
def to_c(units: Sequence[Unit]) -> Tuple[Any, Any, Any, list]:
    """ckpt_unit, ckpt_codec and flags of each unit, and what they point to."""

    keep: list = []
    texts = _Texts()
    codecs = (ctypes.c_int * len(units))()
    flags = (ctypes.c_uint32 * len(units))()
    for index, unit in enumerate(units):
        if unit.codec == "auto":
            raise errors.InvalidArgument(
                f"unit {unit.name}: codec auto was removed: use none, or zstd where the disk is "
                "slower than about 1 GB/s")
        if unit.codec not in CODECS:
            raise errors.InvalidArgument(
                f"unit {unit.name}: codec {unit.codec} is none of {', '.join(CODECS)}")
        codecs[index] = CODECS[unit.codec]
        flags[index] = _abi.CKPT_UNIT_CONSTANT if unit.constant else 0
        texts.add(unit.name, "unit")
        if unit.part is not None:
            texts.add(unit.part, f"unit {unit.name}: part")
        for tensor in unit.tensors:
            texts.add(tensor.name, "tensor")
            texts.add(tensor.dtype, "dtype")
    addresses = texts.addresses()
    tensors = _tensors_to_c(units, addresses, keep)
    words = array.array("Q")
    for unit, first in zip(units, tensors):
        words.extend(_unit_to_c(unit, addresses, first))
    keep += [texts, words]
    c_units = (_abi.ckpt_unit * len(units)).from_buffer(words) if units else (
        _abi.ckpt_unit * 0)()
    return c_units, codecs, flags, keep


# All their members are words of 64 bits.
assert ctypes.sizeof(_abi.ckpt_unit) == 7 * 8 and ctypes.sizeof(_abi.ckpt_tensor) == 5 * 8
