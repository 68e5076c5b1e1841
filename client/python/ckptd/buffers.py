"""Memory of arrays and tensors, without a copy: the address, and what keeps it alive.

Taken from torch-like tensors (`data_ptr`), `__array_interface__` (NumPy), the buffer protocol
(bytes, bytearray, array, memoryview) and DLPack. No such library is imported."""

import ctypes
from typing import Any, Optional, Tuple

from . import errors

_DLPACK_HOST = (1, 3, 11)  # CPU, and memory that CUDA or ROCm has pinned
_NUMPY = {"b1": "BOOL", "u1": "U8", "i1": "I8", "i2": "I16", "u2": "U16", "f2": "F16", "i4": "I32",
          "u4": "U32", "f4": "F32", "f8": "F64", "i8": "I64", "u8": "U64", "c8": "C64"}
_TORCH = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16",
          "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32",
          "float64": "F64", "int64": "I64", "uint64": "U64", "complex64": "C64",
          "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
          "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ"}
_DLPACK = {(0, 8): "I8", (0, 16): "I16", (0, 32): "I32", (0, 64): "I64", (1, 8): "U8",
           (1, 16): "U16", (1, 32): "U32", (1, 64): "U64", (2, 16): "F16", (2, 32): "F32",
           (2, 64): "F64", (4, 16): "BF16", (5, 64): "C64", (6, 8): "BOOL"}


class Memory:
    """Contiguous bytes in this process. `dtype` is the name that safetensors uses, if known."""

    __slots__ = ("address", "nbytes", "readonly", "dtype", "shape", "owner")

    def __init__(self, address: int, nbytes: int, readonly: bool, owner: Any,
                 dtype: Optional[str] = None, shape: Optional[Tuple[int, ...]] = None) -> None:
        self.address = address
        self.nbytes = nbytes
        self.readonly = readonly
        self.owner = owner  # kept alive with the bytes
        self.dtype = dtype
        self.shape = shape

    @staticmethod
    def of(data: Any, name: str = "memory") -> "Memory":
        """The memory of `data`. `name` says in errors what `data` is."""
        if isinstance(data, Memory):
            return data
        if hasattr(data, "data_ptr") and hasattr(data, "element_size"):
            return _of_tensor(data, name)
        if hasattr(data, "__array_interface__"):
            return _of_array(data, name)
        try:
            view = memoryview(data)
        except TypeError:
            view = None
        if view is not None:
            return _of_view(view, name)
        if hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__"):
            return _of_dlpack(data, name)
        raise errors.InvalidArgument(
            f"{name}: {type(data).__name__} shows no memory; pass a tensor, an array, or an object "
            "with the buffer protocol or DLPack")

    def writable(self, name: str = "memory") -> "Memory":
        """This memory, or an error if nothing may be written into it."""
        if self.readonly:
            raise errors.InvalidArgument(f"{name}: it is read-only; pass memory to write into")
        return self


def _not_contiguous(name: str, shape: Any, remedy: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(
        f"{name}: shape {tuple(shape)} is not contiguous in memory; {remedy}")


def _of_tensor(tensor: Any, name: str) -> Memory:
    device = getattr(getattr(tensor, "device", None), "type", "cpu")
    if device == "meta":
        raise errors.InvalidArgument(f"{name}: a tensor on the meta device has no bytes")
    if device != "cpu":
        raise errors.InvalidArgument(
            f"{name}: the tensor is on {tensor.device}; pass tensor.cpu(), memory of the host")
    if "strided" not in str(getattr(tensor, "layout", "strided")):
        raise errors.InvalidArgument(
            f"{name}: layout {tensor.layout} has no single memory; pass its parts one by one")
    shape = tuple(tensor.shape)
    if not tensor.is_contiguous():
        raise _not_contiguous(name, shape, "pass tensor.contiguous()")
    if _is_lazy(tensor, "is_conj") or _is_lazy(tensor, "is_neg"):
        raise errors.InvalidArgument(
            f"{name}: a conjugated or negated view; pass tensor.resolve_conj().resolve_neg()")
    nbytes = tensor.numel() * tensor.element_size()
    try:
        address = tensor.data_ptr()
    except RuntimeError as error:
        raise errors.InvalidArgument(
            f"{name}: {type(tensor).__name__} has no storage of its own: {error}") from None
    if address == 0 and nbytes > 0:
        raise errors.InvalidArgument(
            f"{name}: {type(tensor).__name__} has no storage of its own; pass its local tensor")
    return Memory(address, nbytes, False, tensor, _TORCH.get(str(tensor.dtype).split(".")[-1]),
                  shape)


def _is_lazy(tensor: Any, question: str) -> bool:
    ask = getattr(tensor, question, None)
    return ask is not None and bool(ask())


def _of_array(array: Any, name: str) -> Memory:
    interface = array.__array_interface__
    shape = tuple(interface["shape"])
    kind = interface["typestr"]
    item = _item_bytes(kind)
    if "O" in kind:
        raise errors.InvalidArgument(f"{name}: dtype {kind} has Python objects, not bytes")
    nbytes = item
    for extent in shape:
        nbytes *= extent
    strides = interface.get("strides")
    if strides is not None and nbytes > 0 and not _is_dense(shape, strides, item):
        raise _not_contiguous(name, shape, "pass numpy.ascontiguousarray(array)")
    data = interface.get("data")
    if not isinstance(data, tuple):
        return _of_view(memoryview(array), name)
    dtype = _NUMPY.get(kind[1:]) if kind[0] in "<|=" else None
    return Memory(int(data[0] or 0), nbytes, bool(data[1]), array, dtype, shape)


def _item_bytes(kind: str) -> int:
    count = int("".join(c for c in kind[2:] if c.isdigit()) or "0")
    return count * 4 if kind[1] == "U" else count


def _is_dense(shape: Tuple[int, ...], strides: Tuple[int, ...], item: int) -> bool:
    expected = item
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's stable ABI."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


def _of_view(view: memoryview, name: str) -> Memory:
    if not view.c_contiguous:
        raise _not_contiguous(name, view.shape or (), "pass bytes(view), a copy")
    raw = _PyBuffer()
    api = ctypes.pythonapi
    get = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)(
        ("PyObject_GetBuffer", api))
    release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyBuffer_Release", api))
    get(view, ctypes.addressof(raw), 0)
    address = raw.buf or 0
    release(ctypes.addressof(raw))  # `view`, the owner, keeps the buffer exported
    return Memory(address, view.nbytes, view.readonly, view, None, view.shape)


class _DLTensor(ctypes.Structure):
    """The tensor of DLPack, as its header declares it."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


def _of_dlpack(data: Any, name: str) -> Memory:
    device = data.__dlpack_device__()
    if int(device[0]) not in _DLPACK_HOST:
        raise errors.InvalidArgument(
            f"{name}: DLPack device {tuple(int(part) for part in device)} is not the host; copy it "
            "to the host first")
    capsule = data.__dlpack__()
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi))
    tensor = _DLTensor.from_address(pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    item = tensor.bits * tensor.lanes // 8
    nbytes = item
    for extent in shape:
        nbytes *= extent
    if tensor.strides and nbytes > 0:
        strides = tuple(tensor.strides[i] * item for i in range(tensor.ndim))
        if not _is_dense(shape, strides, item):
            raise _not_contiguous(name, shape, "pass a contiguous copy")
    address = (tensor.data or 0) + tensor.byte_offset
    dtype = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    # The capsule was not consumed: when it is collected, it frees the tensor.
    return Memory(address, nbytes, False, (data, capsule), dtype, shape)
