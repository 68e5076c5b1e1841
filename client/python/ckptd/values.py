"""Documents of plain values: what a state has beside tensors, as checked bytes without pickle.

A document is at the start of a rank's share of the unit `trainer`; zeros follow. Values that do not
fit there are a second document, the rank's blob `ckptd.values` of the same commit: then the first
one has version 2, and the CRC-32 of the blob under `blob` in `extra`. Little-endian:

    magic       8 bytes  "ckptdval"
    version     u32      1; 2: the values of the rank are in its blob
    crc32       u32      zlib.crc32 of all bytes that follow, up to the end of the data
    json_bytes  u64      length of the JSON text
    data_bytes  u64      length of the data behind the text: bytes of tensors and arrays
    text        UTF-8    one JSON value
    data        bytes

In the text, None, booleans, numbers, strings, lists, and dicts with plain string keys are
themselves. The rest is a dict with one key that starts with "$":

    {"$tuple": [...]}  {"$dict": [[key, value], ...]}: other keys, or keys that start with "$"
    {"$bytes": [offset, length]}  {"$pickle": [offset, length]}: only if it is allowed by name
    {"$tensor": [dtype, shape, offset]}  {"$array": [dtype, shape, offset]}: PyTorch, NumPy

The parser trusts nothing: it checks each length and offset before it looks there."""

import json
import struct
import zlib
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import errors
from .boxes import product
from .buffers import Memory
from .flatten import DEPTH_MAX, is_tensor
from .units import DTYPE_BITS

MAGIC = b"ckptdval"
VERSION = 1
VERSION_WITH_BLOB = 2
BLOB = "ckptd.values"
BLOB_BYTES_MAX = 64 << 20  # CKPT_BLOB_BYTES_MAX
HEADER = struct.Struct("<8sIIQQ")
_CHECKED_FROM = 16  # magic, version and crc32 are before
_ARRAYS = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2",
           "I32": "<i4", "U32": "<u4", "F32": "<f4", "F64": "<f8", "I64": "<i8", "U64": "<u8",
           "C64": "<c8"}
Allow = Callable[[str], bool]


def split(named: Sequence[Tuple[str, str, Any]], extra: Any, allow: Allow, rank: int,
          room: int) -> Tuple[bytes, bytes]:
    """(document of at most `room` bytes, blob): the values are in the blob if the document has no
    room for them; else it is empty."""
    whole = _encode_all(named, extra, allow, rank)
    if len(whole) <= room:
        return whole, b""
    blob = blob_of(named, allow, rank)
    return encode([], extra, allow, rank, room, blob), blob


def blob_of(named: Sequence[Tuple[str, str, Any]], allow: Allow, rank: int) -> bytes:
    """The blob of these values."""
    encoded = _encode_all(named, {}, allow, rank)
    if len(encoded) <= BLOB_BYTES_MAX:
        return encoded
    sizes = {name: len(_encode_all([(key, name, value)], {}, allow, rank))
             for key, name, value in named}
    largest = max(sizes, key=lambda name: sizes[name], default="")
    raise errors.InvalidArgument(
        f"value {largest}: the plain values of rank {rank} have {len(encoded)} bytes, "
        f"{sizes.get(largest, 0)} of them in this one, and a rank can save {BLOB_BYTES_MAX}; make "
        "it a tensor of the state")


def encode(named: Sequence[Tuple[str, str, Any]], extra: Any, allow: Allow, rank: int,
           room: Optional[int] = None, blob: bytes = b"") -> bytes:
    """A document {"values": {key: value}, "extra": extra} of (key, name, value), in at most `room`
    bytes. `allow` says of a name whether its value may be pickled. blob: the rank's blob."""
    encoded = _encode_all(named, {**extra, "blob": zlib.crc32(blob)} if blob else extra, allow,
                          rank, VERSION_WITH_BLOB if blob else VERSION)
    if room is not None and len(encoded) > room:
        raise errors.InvalidArgument(
            f"unit trainer: what rank {rank} saves beside its plain values has {len(encoded)} "
            f"bytes, and there is room for {room}; save into a new run with a larger values_bytes")
    return encoded


def pack(name: str, value: Any, allow: Allow, rank: int = 0) -> bytes:
    """One value as a document of its own: tensors in it become no units."""
    return _encode_all([("value", name, value)], {}, allow, rank)


def unpack(raw: bytes, name: str, allow: Allow) -> Any:
    """The value of `pack`."""
    document = parse(raw, f"value {name}")
    if not document.has("value"):
        raise errors.Corrupt(f"value {name}: its document has no value; restore another step")
    return document.value("value", name, allow)


def _encode_all(named: Sequence[Tuple[str, str, Any]], extra: Any, allow: Allow, rank: int,
                version: int = VERSION) -> bytes:
    data: List[bytes] = []
    coded = {}
    for key, name, value in named:
        try:
            coded[key] = _encode(value, name, data, 0, rank)
        except errors.InvalidArgument:
            if not allow(name):
                raise
            import pickle
            coded[key] = {"$pickle": _append(data, pickle.dumps(value))}
    text = json.dumps({"values": coded, "extra": extra}, separators=(",", ":")).encode()
    tail = struct.pack("<QQ", len(text), sum(map(len, data))) + text + b"".join(data)
    return HEADER.pack(MAGIC, version, zlib.crc32(tail), 0, 0)[:_CHECKED_FROM] + tail


def _append(data: List[bytes], more: bytes) -> List[int]:
    offset = sum(map(len, data))
    data.append(more)
    return [offset, len(more)]


def _encode(value: Any, name: str, data: List[bytes], depth: int, rank: int) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth > DEPTH_MAX:
        raise errors.InvalidArgument(
            f"value {name}: it is nested more than {DEPTH_MAX} deep on rank {rank}")
    if isinstance(value, (list, tuple)):
        items = [_encode(item, name, data, depth + 1, rank) for item in value]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, dict):
        items = [[_encode(key, name, data, depth + 1, rank),
                  _encode(item, name, data, depth + 1, rank)] for key, item in value.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return dict(items)
        return {"$dict": items}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": _append(data, bytes(value))}
    if is_tensor(value) or hasattr(value, "__array_interface__"):
        return _encode_array(value, name, data, rank)
    raise errors.InvalidArgument(
        f"value {name}: {type(value).__name__} on rank {rank} is neither JSON nor a tensor; leave "
        f'it out, convert it, or allow its pickle with allow_pickle=["{name}"]')


def _encode_array(value: Any, name: str, data: List[bytes], rank: int) -> Any:
    tensor = is_tensor(value)
    if tensor:
        value = value.detach().cpu().contiguous()
    elif not value.shape and hasattr(value, "item"):
        return _encode(value.item(), name, data, DEPTH_MAX, rank)  # a NumPy scalar
    else:
        value = value.copy(order="C")
    memory = Memory.of(value, f"value {name} of rank {rank}")
    if memory.dtype is None or memory.dtype not in DTYPE_BITS:
        raise errors.InvalidArgument(
            f"value {name}: dtype {value.dtype} on rank {rank} cannot be stored; convert it")
    import ctypes
    offset = _append(data, ctypes.string_at(memory.address, memory.nbytes)
                     if memory.nbytes else b"")[0]
    return {"$tensor" if tensor else "$array": [memory.dtype, list(memory.shape or ()), offset]}


def document_bytes(header: bytes, room: int) -> int:
    """Bytes of the document that this header begins, at most `room`; `parse` checks it."""
    _, _, _, json_bytes, data_bytes = HEADER.unpack(header)
    return min(HEADER.size + json_bytes + data_bytes, room)


class Document(NamedTuple):
    """A parsed document. `value` decodes one value."""

    coded: dict
    extra: dict
    data: bytes
    where: str
    blob: Optional["Document"] = None

    @property
    def needs_blob(self) -> bool:
        return "blob" in self.extra

    def names(self) -> Iterator[str]:
        """Keys of the values."""
        yield from self.coded
        yield from self.blob.coded if self.blob is not None else ()

    def has(self, key: str) -> bool:
        return key in self.coded or (self.blob is not None and key in self.blob.coded)

    def with_blob(self, raw: bytes) -> "Document":
        """Adds the values of the blob, which must be the one of this document."""
        if zlib.crc32(raw) != self.extra.get("blob"):
            raise errors.Corrupt(
                f"{self.where}: blob {BLOB} is of another step; restore another step")
        return self._replace(blob=parse(raw, f"{self.where}, blob {BLOB}"))

    def value(self, key: str, name: str, allow: Allow) -> Any:
        if self.blob is not None and key not in self.coded:
            return self.blob.value(key, name, allow)
        try:
            return _decode(self.coded[key], name, self, allow)
        except (TypeError, ValueError, KeyError, RecursionError, OverflowError) as error:
            if isinstance(error, errors.Error):
                raise
            raise errors.Corrupt(f"{self.where}: value {name} is malformed: {error}") from None


def parse(raw: bytes, where: str) -> Document:
    """The document at the start of the bytes; Corrupt says what is wrong with them."""
    def wrong(why: str) -> errors.Corrupt:
        return errors.Corrupt(f"{where}: {why}; restore another step")
    if len(raw) < HEADER.size:
        raise wrong(f"{len(raw)} bytes are shorter than a header")
    magic, version, crc, json_bytes, data_bytes = HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise wrong("no document of values begins here")
    if version not in (VERSION, VERSION_WITH_BLOB):
        raise errors.VersionMismatch(
            f"{where}: version {version} of values, and this package reads {VERSION} and "
            f"{VERSION_WITH_BLOB}; upgrade it")
    room = len(raw) - HEADER.size
    if json_bytes > room or data_bytes > room - json_bytes:
        raise wrong(f"{json_bytes} and {data_bytes} bytes do not fit into {room}")
    end = HEADER.size + json_bytes + data_bytes
    if zlib.crc32(raw[_CHECKED_FROM:end]) != crc:
        raise wrong("the checksum does not match")
    try:
        text = json.loads(raw[HEADER.size:HEADER.size + json_bytes].decode())
    except (ValueError, RecursionError) as error:
        raise wrong(f"the text is no JSON: {error}") from None
    if not isinstance(text, dict) or not isinstance(text.get("values"), dict) or not isinstance(
            text.get("extra"), dict):
        raise wrong("the text has no values")
    return Document(text["values"], text["extra"], raw[end - data_bytes:end], where)


def _slice(document: Document, offset: Any, length: Any) -> bytes:
    for number in (offset, length):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"{number!r} is no size")
    if offset > len(document.data) or length > len(document.data) - offset:
        raise ValueError("it lies outside the data")
    return document.data[offset:offset + length]


def _decode(coded: Any, name: str, document: Document, allow: Allow) -> Any:
    if isinstance(coded, list):
        return [_decode(item, name, document, allow) for item in coded]
    if not isinstance(coded, dict):
        return coded
    if len(coded) != 1 or not next(iter(coded)).startswith("$"):
        return {key: _decode(item, name, document, allow) for key, item in coded.items()}
    ((kind, inner),) = coded.items()
    if kind == "$tuple":
        return tuple([_decode(item, name, document, allow) for item in inner])
    if kind == "$dict":
        return {_decode(key, name, document, allow): _decode(item, name, document, allow)
                for key, item in inner}
    if kind == "$bytes":
        return _slice(document, *inner)
    if kind in ("$tensor", "$array"):
        return _decode_array(kind == "$tensor", *inner, document)
    if kind != "$pickle":
        raise ValueError(f"{kind} is unknown")
    if not allow(name):
        raise errors.InvalidArgument(
            f"{document.where}: value {name} is a pickle, which can run code; if you trust the "
            f'run, pass allow_pickle=["{name}"]')
    import pickle
    return pickle.loads(_slice(document, *inner))


def _decode_array(tensor: bool, dtype: str, shape: Any, offset: int, document: Document) -> Any:
    if dtype not in DTYPE_BITS or not isinstance(shape, list) or len(shape) > 64 or not all(
            isinstance(extent, int) and 0 <= extent < 1 << 48 for extent in shape):
        raise ValueError(f"{dtype} {shape} is no kind of tensor")
    raw = _slice(document, offset, product(shape) * DTYPE_BITS[dtype] // 8)
    if not tensor:
        import numpy
        return numpy.frombuffer(raw, numpy.dtype(_ARRAYS[dtype])).reshape(shape).copy()
    from .transfer import torch_dtype
    import torch
    if not raw:
        return torch.empty(shape, dtype=torch_dtype(dtype))
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(torch_dtype(dtype)).reshape(
        shape)
