"""One tensor in a `.distcp` file: an archive of torch.save. Its bytes are read where they lie.

The archive is a zip file without compression: `data.pkl` describes the tensor, `data/0` has its
storage. The description is read as plain data (`pickles`); the storage is copied piece by piece, so
that memory does not grow with the tensor. Bytes of a whole storage are checked against the CRC-32
of the zip file."""

import collections
import ctypes
import io
import mmap
import os
import zipfile
import zlib
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch

from . import errors, pickles
from .boxes import Box, narrow, product
from .buffers import _TORCH
from .dcp_folder import Item, Stored, overlap, truncated
from .layout import Kind

FILES_MAX = 32  # open at a time
DESCRIPTION_BYTES_MAX = 1 << 20  # of a tensor, and of the directory of its archive
_LOCAL_HEADER = 30  # bytes, before the name and the extra field
_STORAGES = {"FloatStorage": "F32", "DoubleStorage": "F64", "HalfStorage": "F16",
             "BFloat16Storage": "BF16", "LongStorage": "I64", "IntStorage": "I32",
             "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
             "BoolStorage": "BOOL", "ComplexFloatStorage": "C64"}
_REBUILDS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3")
_KNOWN = frozenset((
    *_REBUILDS, "collections.OrderedDict", "torch.UntypedStorage", "torch.storage.UntypedStorage",
    *(f"torch.{name}" for name in (*_STORAGES, *_TORCH))))


class Files:
    """Files of a folder, a few of them open at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: "collections.OrderedDict[str, int]" = collections.OrderedDict()

    def path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def descriptor(self, name: str) -> int:
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        try:
            opened = os.open(self.path(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self.failed(name, error) from None
        self._open[name] = opened
        if len(self._open) > FILES_MAX:
            os.close(self._open.popitem(last=False)[1])
        return opened

    def failed(self, name: str, error: OSError) -> errors.IOFailure:
        return errors.IOFailure(
            f"{self.path(name)}: {error.strerror}; check the disk and the access rights")

    def read(self, file: str, offset: int, target: Any, name: str) -> None:
        """Fills a writable buffer with the bytes at the offset."""
        view = memoryview(target)  # of bytes
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self.descriptor(file), [view[done:]], offset + done)
            except OSError as error:
                raise self.failed(file, error) from None
            if count == 0:
                raise truncated(self.path(file), name, offset + len(view), offset + done)
            done += count

    def bytes_of(self, item: Item, name: str) -> bytearray:
        """A whole item."""
        raw = bytearray(item.length)
        self.read(item.file, item.offset, raw, name)
        return raw

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


class _View(io.RawIOBase):
    """An item as a file for zipfile, which reads no more than a directory of it at a time."""

    def __init__(self, files: Files, item: Item, name: str) -> None:
        self._files, self._item, self._name = files, item, name
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at,
                             os.SEEK_END: self._item.length}[whence]
        if self._at < 0:
            raise ValueError("it has no such place")
        return self._at

    def read(self, count: int = -1) -> bytes:
        left = max(self._item.length - self._at, 0)
        count = left if count < 0 else min(count, left)
        if count > DESCRIPTION_BYTES_MAX:
            raise ValueError(f"its directory has more than {DESCRIPTION_BYTES_MAX} bytes")
        raw = bytearray(count)
        self._files.read(self._item.file, self._item.offset + self._at, raw, self._name)
        self._at += count
        return bytes(raw)


class Record(NamedTuple):
    """A file of the archive, as a range of the .distcp file."""

    offset: int
    length: int
    crc: int


def records(files: Files, item: Item, name: str) -> Dict[str, Record]:
    """The files of an archive by name, without the folder that all of them are in."""
    def wrong(why: str) -> errors.Corrupt:
        return errors.Corrupt(
            f"{files.path(item.file)}: item {name} is no whole archive of torch.save: {why}; copy "
            "the folder again from a whole one")
    found: Dict[str, Record] = {}
    view = _View(files, item, name)
    try:
        with zipfile.ZipFile(view) as archive:  # type: ignore[arg-type]
            for info in archive.infolist():
                if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                    raise wrong(f"{info.filename} is compressed or encrypted")
                view.seek(info.header_offset)
                header = view.read(_LOCAL_HEADER)
                if len(header) < _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
                    raise wrong(f"{info.filename} has no header")
                begin = info.header_offset + _LOCAL_HEADER + sum(
                    int.from_bytes(header[at:at + 2], "little") for at in (26, 28))
                short = info.filename.partition("/")[2]
                if info.file_size != info.compress_size or begin + info.file_size > item.length:
                    raise wrong(f"{info.filename} does not fit into it")
                if short in found:
                    raise wrong(f"{info.filename} is there twice")
                found[short] = Record(item.offset + begin, info.file_size, info.CRC)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
        if isinstance(error, errors.Error):
            raise
        raise wrong(str(error)) from None
    if "data.pkl" not in found:
        raise wrong("it has no data.pkl")
    order = found.get("byteorder")
    if order is not None and _small(files, item, order, name) != b"little":
        raise wrong("its byte order is not little-endian")
    return found


def _small(files: Files, item: Item, record: Record, name: str) -> bytes:
    raw = bytearray(min(record.length, DESCRIPTION_BYTES_MAX))
    files.read(item.file, record.offset, raw, name)
    return bytes(raw)


class _Storage(NamedTuple):
    dtype: str  # empty: bytes
    key: str


class Source:
    """The elements of one chunk. `copy` reads a part of them; parts should come in ascending order,
    then the whole storage is checked, too."""

    def __init__(self, files: Files, item: Item, name: str, kind: Kind) -> None:
        self._files, self._item, self._name = files, item, name
        self._kind = kind
        self._where = f"{files.path(item.file)}: tensor {name}"
        found = records(files, item, name)
        if found["data.pkl"].length > DESCRIPTION_BYTES_MAX:
            raise self._wrong("its description is too large")
        described = pickles.load(_small(files, item, found["data.pkl"], name), self._where, _KNOWN,
                                 self._persistent)
        storage, first, shape, strides, dtype = self._described(described)
        record = found.get("data/" + storage.key)
        if record is None:
            raise self._wrong(f"its storage {storage.key} is not in the archive")
        if Kind(dtype, shape) != kind:
            raise self._wrong(f"it is {Kind(dtype, shape)} there, and {kind} in .metadata")
        size = kind.item_bytes()
        last = first + sum((extent - 1) * stride for extent, stride in zip(shape, strides))
        if (last + 1) * size > record.length:
            raise self._wrong("its storage is too short")
        self._whole = record.length == product(shape) * size
        self._record = record
        self._begin = record.offset + first * size
        self._strides = None if _is_contiguous(shape, strides) else strides
        self._crc: Optional[int] = 0 if self._whole and self._strides is None else None
        self._next = 0  # byte of the storage

    def _wrong(self, why: str) -> errors.Corrupt:
        return errors.Corrupt(f"{self._where}: {why}; copy the folder again from a whole one")

    def _persistent(self, ident: Any) -> _Storage:
        if type(ident) is not tuple or len(ident) != 5 or ident[0] != "storage" or type(
                ident[1]) is not pickles.Global or type(ident[2]) is not str:
            raise ValueError("it refers to data that are no storage")
        return _Storage(_STORAGES.get(ident[1].name.rpartition(".")[2], ""), ident[2])

    def _described(self, value: Any) -> Tuple[_Storage, int, Tuple[int, ...], Tuple[int, ...], str]:
        """Storage, first element, shape, strides and dtype of a pickled tensor."""
        if type(value) is not pickles.Object or value.name not in _REBUILDS or len(value.args) < 6:
            raise self._wrong("it is no tensor")
        storage, first, shape, strides = value.args[:4]
        rest = value.args[6:]
        dtype = storage.dtype if type(storage) is _Storage else ""
        if value.name == _REBUILDS[1] and rest and type(rest[0]) is pickles.Global:
            dtype, rest = _TORCH.get(rest[0].name.rpartition(".")[2], ""), rest[1:]
        if type(storage) is not _Storage or not dtype or not _numbers([first]) or not (
                _numbers(shape) and _numbers(strides)) or len(shape) != len(strides):
            raise self._wrong("its description is damaged")
        if rest and rest[0]:
            raise self._wrong("it is a conjugated or negated view")
        return storage, first, shape, strides, dtype

    def copy(self, box: Box, target: Any, buffer: Any) -> None:
        """Copies a box of the chunk into a tensor of bytes [*box.sizes, bytes of an element].
        The box is one run of elements in row-major order. `buffer`: bytes to copy through."""
        size = self._kind.item_bytes()
        if self._strides is not None:
            self._copy_strided(box, target)
            return
        begin = _first(self._kind.shape, box.offsets) * size
        count = box.elements() * size
        direct = target.is_contiguous()
        into = target if direct else buffer[:count]
        memory = (ctypes.c_char * count).from_address(into.data_ptr())
        self._files.read(self._item.file, self._begin + begin, memory, self._name)
        self._check(begin, memory)
        if not direct:
            target.copy_(into.view(target.shape))

    def _check(self, begin: int, memory: Any) -> None:
        if self._crc is None or begin != self._next:
            self._crc = None
            return
        self._crc = zlib.crc32(memory, self._crc)
        self._next += len(memory)
        if self._next == self._record.length:
            self._compare(self._crc)

    def _compare(self, crc: int) -> None:
        if crc != self._record.crc:
            raise self._wrong("its bytes do not match their CRC-32")

    def _copy_strided(self, box: Box, target: Any) -> None:
        """Maps the storage: its order is another one. The pages belong to the file."""
        size, length = self._kind.item_bytes(), self._record.length
        start = self._record.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        skip = self._record.offset - start
        try:
            with open(self._files.path(self._item.file), "rb") as file:
                memory = mmap.mmap(file.fileno(), skip + length, access=mmap.ACCESS_COPY,
                                   offset=start)
        except (OSError, ValueError) as error:
            raise errors.IOFailure(f"{self._where}: {error}; check the disk") from None
        assert self._strides is not None
        if self._whole and self._next == 0:
            self._next = length
            self._compare(zlib.crc32(memoryview(memory)[skip:skip + length]))
        data = torch.frombuffer(memory, dtype=torch.uint8)
        strided = data[self._begin - start:].as_strided(
            (*self._kind.shape, size), (*(stride * size for stride in self._strides), 1))
        target.copy_(narrow(strided, box.offsets, box.sizes))


def _numbers(values: Any) -> bool:
    return type(values) in (tuple, list) and all(
        type(value) is int and 0 <= value < 1 << 60 for value in values)


def _is_contiguous(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _first(shape: Tuple[int, ...], offsets: Tuple[int, ...]) -> int:
    """Number of an element in row-major order."""
    number = 0
    for extent, offset in zip(shape, offsets):
        number = number * extent + offset
    return number


class Tensor:
    """A tensor of a folder. Its chunks are opened at their first use."""

    def __init__(self, files: Files, name: str, stored: Stored) -> None:
        self._files, self._name = files, name
        self.kind = stored.kind
        self._chunks = stored.chunks
        self._sources: Dict[int, Source] = {}

    def check(self) -> None:
        """Reads the descriptions of all chunks."""
        for at in range(len(self._chunks)):
            self._open(at)

    def read(self, box: Box, target: Any, buffer: Any) -> None:
        """Copies a box of the tensor into bytes [*box.sizes, bytes of an element]. The box is one
        run of elements in row-major order, and so are its parts in the chunks."""
        for at, (held, _) in enumerate(self._chunks):
            if box.offsets and held.offsets[0] >= box.offsets[0] + box.sizes[0]:
                break  # chunks are sorted
            part = overlap(held, box)
            if part is not None:
                if at not in self._sources:
                    self._sources[at] = self._open(at)
                into = narrow(target, _minus(part.offsets, box.offsets), part.sizes)
                inner = Box(_minus(part.offsets, held.offsets), part.sizes)
                self._sources[at].copy(inner, into, buffer)

    def close(self) -> None:
        self._sources.clear()

    def _open(self, at: int) -> Source:
        box, item = self._chunks[at]
        return Source(self._files, item, self._name, self.kind._replace(shape=box.sizes))


def _minus(one: Tuple[int, ...], other: Tuple[int, ...]) -> Tuple[int, ...]:
    return tuple(a - b for a, b in zip(one, other))


class Held:
    """A tensor in memory, read like a `Tensor`."""

    def __init__(self, data: Any, kind: Kind) -> None:
        self.kind = kind
        flat = data.detach().contiguous().reshape(-1)
        self._bytes = flat.view(torch.uint8).view(*kind.shape, kind.item_bytes())

    def read(self, box: Box, target: Any, buffer: Any) -> None:
        target.copy_(narrow(self._bytes, box.offsets, box.sizes))

    def close(self) -> None:
        pass
