"""Units of a run's state, made of tensors."""

import ctypes
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _abi, errors
from ._convert import text, text_or_none, unsigned
from .buffers import Memory

# Bits of one element, by the names of safetensors.
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
    "F32": 32, "F64": 64, "I64": 64, "U64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
CODECS = {"default": _abi.CKPT_CODEC_DEFAULT, "none": _abi.CKPT_CODEC_NONE,
          "zstd": _abi.CKPT_CODEC_ZSTD, "delta": _abi.CKPT_CODEC_DELTA}


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
            bits *= unsigned(extent, f"tensor {self.name}: extent")
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
            tensors.append(tensor._replace(offset=offset))
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


def _to_c(unit: Unit, index: int, c_units: Any, keep: list) -> None:

    tensors = (_abi.ckpt_tensor * len(unit.tensors))()
    for c_tensor, tensor in zip(tensors, unit.tensors):
        shape = (ctypes.c_uint64 * len(tensor.shape))(*tensor.shape)
        keep.append(shape)
        c_tensor.name = text(tensor.name, "tensor")
        c_tensor.dtype = text(tensor.dtype, "dtype")
        c_tensor.shape = shape
        c_tensor.rank = len(tensor.shape)
        c_tensor.offset = unsigned(tensor.offset, f"tensor {tensor.name}: offset")
    keep.append(tensors)
    target = c_units[index]
    target.name = text(unit.name, "unit")
    target.layer = _number(unit, "layer", unit.layer)
    target.expert = _number(unit, "expert", unit.expert)
    target.part = text_or_none(unit.part, f"unit {unit.name}: part")
    target.bytes = unsigned(unit.bytes, f"unit {unit.name}: bytes")
    target.tensors = tensors
    target.tensor_count = len(tensors)


def to_c(units: Sequence[Unit]) -> Tuple[Any, Any, Any, list]:
    """ckpt_unit, ckpt_codec and flags of each unit, and what they point to."""

    keep: list = []
    c_units = (_abi.ckpt_unit * len(units))()
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
        _to_c(unit, index, c_units, keep)
        codecs[index] = CODECS[unit.codec]
        flags[index] = _abi.CKPT_UNIT_CONSTANT if unit.constant else 0
    return c_units, codecs, flags, keep
