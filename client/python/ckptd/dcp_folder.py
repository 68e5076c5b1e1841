"""A folder of torch.distributed.checkpoint (DCP), as its FileSystemWriter makes it.

`.metadata` is a pickle that describes all items: it is read as plain data (`pickles`), never
unpickled. Each item is a range of a `.distcp` file. Imports no torch."""

import os
import stat
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import errors, pickles
from .boxes import Box, product
from .buffers import _TORCH
from .layout import Kind

METADATA = ".metadata"
METADATA_BYTES_MAX = 1 << 30
VERSIONS = (None, "1.0.0")
RANK_MAX = 64  # dimensions
EXTENT_MAX = 1 << 48
_CLASSES = "torch.distributed.checkpoint.metadata."
_INFO = "torch.distributed.checkpoint.filesystem._StorageInfo"
_LAYOUT = "torch.serialization._get_layout"
_DTYPES = {f"torch.{name}" for name in (*_TORCH, "complex32", "complex128", "float4_e2m1fn_x2")}
_PATHS = {f"{module}.{name}" for module in ("pathlib", "pathlib._local")
          for name in ("Path", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath")}
KNOWN = frozenset(
    {_CLASSES + name for name in (
        "Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata",
        "ChunkStorageMetadata", "TensorProperties", "StorageMeta", "_MEM_FORMAT_ENCODING")} |
    {_INFO, _LAYOUT, "torch.Size"} | _DTYPES | _PATHS)
_FIELDS = {
    "Metadata": {"state_dict_metadata", "planner_data", "storage_data", "storage_meta", "version"},
    "MetadataIndex": {"fqn", "offset", "index"},
    "TensorStorageMetadata": {"properties", "size", "chunks"},
    "ChunkStorageMetadata": {"offsets", "sizes"},
    "_StorageInfo": {"relative_path", "offset", "length", "transform_descriptors"}}


class Item(NamedTuple):
    """A range of a file."""

    file: str
    offset: int
    length: int


class Chunk(NamedTuple):
    """A part of a tensor."""

    box: Box
    item: Item


class Stored(NamedTuple):
    """A tensor. Chunks without elements are left out."""

    kind: Kind
    chunks: List[Chunk]


class Folder(NamedTuple):
    """Checked contents of `.metadata`: chunks cover each tensor, and files hold the items."""

    path: str
    tensors: Dict[str, Stored]
    values: Dict[str, Item]
    paths: Dict[str, Tuple[Any, ...]]  # place of each item in the nested state, if it is known
    ranks: int  # that wrote files


def read(path: str) -> Folder:
    where = os.path.join(path, METADATA)
    metadata = _fields(pickles.load(_bytes(path, where), where, KNOWN), "Metadata", where)
    if metadata.get("version") not in VERSIONS:
        raise errors.VersionMismatch(
            f"{where}: version {metadata['version']!r} of DCP, and this package reads 1.0.0; "
            "upgrade ckptd, or save the state again with PyTorch 2.9 to 2.11")
    items = _items(metadata.get("storage_data"), where)
    described = metadata.get("state_dict_metadata")
    if type(described) is not dict:
        raise _wrong(where, "it describes no state")
    tensors: Dict[str, Stored] = {}
    values: Dict[str, Item] = {}
    for name, entry in described.items():
        if type(name) is not str:
            raise _wrong(where, f"the name {name!r} is no string")
        if _is(entry, "BytesStorageMetadata"):
            values[name] = _item(items, name, None, where)
        else:
            tensors[name] = _tensor(name, _fields(entry, "TensorStorageMetadata", where), items,
                                    where)
    _check_files(path, tensors, values)
    ranks = {item.file.split("_")[2] for item in items.values() if item.file.startswith("__")}
    return Folder(path, tensors, values, _paths(metadata.get("planner_data"), described),
                  max(len(ranks), 1))


def _bytes(path: str, where: str) -> bytes:
    try:
        if os.path.getsize(where) > METADATA_BYTES_MAX:
            raise _wrong(where, f"it has more than {METADATA_BYTES_MAX} bytes")
        with open(where, "rb") as file:
            return file.read()
    except FileNotFoundError:
        if not os.path.isdir(path):
            raise errors.NotFound(f"folder {path}: it does not exist; name a DCP folder") from None
        why = "its save has not ended, or this is no DCP folder"
        if os.path.exists(os.path.join(path, "__0" + METADATA)):
            why = "each rank saved on its own (no_dist or use_collectives=False); save with all"
        raise errors.NotFound(f"{where}: the file is missing: {why}") from None
    except OSError as error:
        raise errors.IOFailure(f"{where}: {error.strerror}; check the disk and the access "
                               "rights") from None


def _wrong(where: str, why: str) -> errors.Corrupt:
    return errors.Corrupt(f"{where}: {why}; copy the folder again from a whole one")


def _is(value: Any, name: str) -> bool:
    return type(value) is pickles.Object and value.name.rsplit(".", 1)[-1] == name


def _fields(value: Any, name: str, where: str) -> Dict[str, Any]:
    """The state of an object of that class."""
    if not _is(value, name):
        raise _wrong(where, f"there is no {name} where one belongs")
    state = value.state
    if type(state) is not dict:
        raise _wrong(where, f"a {name} has no fields")
    unknown = [key for key in state if key not in _FIELDS[name]]
    if unknown:
        raise errors.VersionMismatch(
            f"{where}: class {name} has the field {unknown[0]!r}, which PyTorch 2.9 to 2.11 do not "
            "write; save the state again with one of these")
    return state


def _size(value: Any, where: str) -> Tuple[int, ...]:
    """A torch.Size."""
    if _is(value, "Size") and len(value.args) == 1 and type(value.args[0]) is tuple:
        value = value.args[0]
    if type(value) is not tuple or len(value) > RANK_MAX or not all(
            type(extent) is int and 0 <= extent <= EXTENT_MAX for extent in value):
        raise _wrong(where, "a size or an offset is no tuple of numbers")
    return value


def _items(data: Any, where: str) -> Dict[Tuple[str, Any], Item]:
    """Ranges of files by (name, offsets in the tensor)."""
    if type(data) is not dict:
        raise _wrong(where, "it names no files")
    found: Dict[Tuple[str, Any], Item] = {}
    for key, value in data.items():
        index = _fields(key, "MetadataIndex", where)
        info = _fields(value, "_StorageInfo", where)
        name, at = index.get("fqn"), index.get("offset")
        file, offset, length = (info.get(field) for field in ("relative_path", "offset", "length"))
        if type(name) is not str:
            raise _wrong(where, f"the name {name!r} is no string")
        if type(file) is not str or file in ("", ".", "..") or "/" in file or "\0" in file:
            raise _wrong(where, f"item {name}: its file {file!r} is not one of this folder")
        for number in (offset, length):
            if type(number) is not int or not 0 <= number <= EXTENT_MAX:
                raise _wrong(where, f"item {name}: {number!r} is no place in file {file}")
        if info.get("transform_descriptors"):
            raise errors.InvalidArgument(
                f"{where}: item {name} is stored with {info['transform_descriptors']}; save it "
                "without extensions of FileSystemWriter")
        which = (name, None if at is None else _size(at, where))
        if which in found:
            raise _wrong(where, f"item {name} at {which[1]} is there twice")
        found[which] = Item(file, offset, length)
    return found


def _item(items: Dict[Tuple[str, Any], Item], name: str, at: Any, where: str) -> Item:
    if (name, at) not in items:
        place = "" if at is None else f" at {list(at)}"
        raise _wrong(where, f"item {name}{place}: no file is named for it")
    return items[name, at]


def _tensor(name: str, entry: Dict[str, Any], items: Dict[Tuple[str, Any], Item],
            where: str) -> Stored:
    shape = _size(entry.get("size"), where)
    properties, chunks = entry.get("properties"), entry.get("chunks")
    if not _is(properties, "TensorProperties") or type(chunks) is not list:
        raise _wrong(where, f"tensor {name}: it has no dtype or no chunks")
    state = properties.state
    if type(state) is not tuple or len(state) != 5:
        raise errors.VersionMismatch(
            f"{where}: tensor {name}: its properties are not those of PyTorch 2.9 to 2.11; save "
            "the state again with one of these")
    dtype = state[0].name if type(state[0]) is pickles.Global else ""
    kind = Kind(_TORCH.get(dtype[len("torch."):], ""), shape)
    if dtype not in _DTYPES or not kind.dtype:
        raise errors.InvalidArgument(
            f"{where}: tensor {name}: dtype {dtype or 'unknown'} cannot be stored; convert it, or "
            "leave it out of the save")
    if not (_is(state[1], "_get_layout") and state[1].args == ("torch.strided",)):
        raise errors.InvalidArgument(
            f"{where}: tensor {name}: it is not dense; save its parts one by one")
    found = []
    for chunk in chunks:
        fields = _fields(chunk, "ChunkStorageMetadata", where)
        box = Box(_size(fields.get("offsets"), where), _size(fields.get("sizes"), where))
        if len(box.offsets) != len(shape) or len(box.sizes) != len(shape) or any(
                at + size > extent for at, size, extent in zip(box.offsets, box.sizes, shape)):
            raise _wrong(where, f"tensor {name}: the chunk at {list(box.offsets)} of sizes "
                         f"{list(box.sizes)} is not within {kind}")
        if box.elements():
            found.append(Chunk(box, _item(items, name, box.offsets, where)))
    found.sort(key=lambda chunk: chunk.box)
    _check_whole(name, kind, [chunk.box for chunk in found], where)
    return Stored(kind, found)


def _check_whole(name: str, kind: Kind, boxes: List[Box], where: str) -> None:
    """The boxes, sorted, cover the tensor exactly."""
    active: List[Box] = []  # that reach further in the first dimension than the current box begins
    for box in boxes:
        active = [one for one in active if box.offsets and
                  one.offsets[0] + one.sizes[0] > box.offsets[0]]
        for one in active:
            if overlap(one, box) is not None:
                raise _wrong(where, f"tensor {name}: its chunks at {list(one.offsets)} and "
                             f"{list(box.offsets)} overlap")
        active.append(box)
    held, total = sum(box.elements() for box in boxes), product(kind.shape)
    if held != total:
        raise _wrong(where, f"tensor {name}: its chunks have {held} of its {total} elements, in "
                     f"{kind}")


def overlap(one: Box, other: Box) -> Optional[Box]:
    """The common part of two boxes of one tensor."""
    offsets = tuple(map(max, one.offsets, other.offsets))
    ends = tuple(min(a + b, c + d) for a, b, c, d in zip(one.offsets, one.sizes, other.offsets,
                                                         other.sizes))
    sizes = tuple(end - at for at, end in zip(offsets, ends))
    return Box(offsets, sizes) if all(size > 0 for size in sizes) else None


def _paths(planner: Any, described: Dict[str, Any]) -> Dict[str, Tuple[Any, ...]]:
    """The table of DefaultSavePlanner. Another planner's data are left out."""
    if type(planner) is not dict:
        return {}
    return {name: path for name, path in planner.items()
            if type(name) is str and name in described and type(path) is tuple and path and all(
                type(key) in (str, int) for key in path)}


def _check_files(path: str, tensors: Dict[str, Stored], values: Dict[str, Item]) -> None:
    items = [(name, chunk.item) for name, stored in tensors.items() for chunk in stored.chunks]
    sizes: Dict[str, int] = {}
    for name, item in items + list(values.items()):
        where = os.path.join(path, item.file)
        if item.file not in sizes:
            try:
                found = os.stat(where)
            except FileNotFoundError:
                raise errors.NotFound(
                    f"{where}: the file is missing, and has item {name}; copy the folder again "
                    "from a whole one") from None
            except OSError as error:
                raise errors.IOFailure(f"{where}: {error.strerror}; item {name} is there") from None
            if not stat.S_ISREG(found.st_mode):
                raise _wrong(where, f"it is no file, and has item {name}")
            sizes[item.file] = found.st_size
        if item.offset + item.length > sizes[item.file]:
            raise truncated(where, name, item.offset + item.length, sizes[item.file])


def truncated(where: str, name: str, needed: int, size: int) -> errors.Corrupt:
    return errors.Corrupt(
        f"{where}: it is truncated: item {name} ends at byte {needed}, the file at {size}; copy "
        "the folder again from a whole one")
