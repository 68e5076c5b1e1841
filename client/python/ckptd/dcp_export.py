"""Writes a view of a run as a DCP folder: see `convert`.

Tensors are cut into chunks, each of which is an archive of torch.save in a file `__0_N.distcp`.
`.metadata` comes last, when everything else is on disk: until then this is no DCP folder."""

import contextlib
import errno
import os
import pickle
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
    TensorProperties, TensorStorageMetadata)

from . import boxes, dcp_names, errors, growing, joining, layout, restoring, transfer
from .boxes import Box
from .dcp_folder import METADATA
from .epoch import View
from .session import Session

CHUNK_BYTES = 64 << 20
FILE_BYTES = 4 << 30


class Exported(NamedTuple):
    run: str
    view: View
    tensors: int
    values: int
    bytes: int
    left_out: List[str]  # what DCP has no place for


def export_dcp(run: str, folder: str, step: Any = "latest", *, socket: Optional[str] = None,
               allow_pickle: Sequence[str] = (), exact: bool = True, timeout: float = 60.0,
               **session: Any) -> Exported:
    """Writes a view of a run to a new folder, which dcp.load reads. Nothing is left if it fails.

    run: its name, RUN@STEP, RUN@TAG or RUN~LINEAGE@STEP. step: a step, "latest" or a tag. exact:
    damage is an error, not a reason to take an older version of a unit. allow_pickle: names of
    values that are pickles."""
    name, step = _view_of(run, step)
    options = {"socket": socket, "arena_bytes": joining.READER_BYTES_MAX,
               "slab_bytes": joining.READER_SLAB_BYTES, **session}

    def allow(value: str) -> bool:
        return value in allow_pickle
    with Session(name, **options) as opened:
        found = joining.stored_layout(opened)
        if found is None:
            raise errors.NotFound(f"run {name}: it has nothing to export")
        with opened.restore(step, exact=exact) as held, _Files(folder) as files:
            found = growing.in_view(opened, held.view, found)
            return _Export(held, found, files, allow, timeout).run(name)


def _view_of(target: str, step: Any) -> Tuple[str, Any]:
    """(run, view) of RUN, whose view is `step`, or of a target that names its view."""
    name, at, named = target.partition("@")
    run, tilde, lineage = name.partition("~")
    if not tilde:
        return run, (int(named) if named.isdecimal() else named) if at else step
    if not (lineage.isdecimal() and named.isdecimal()):
        raise errors.InvalidArgument(
            f"view {target}: name it as RUN, RUN@STEP, RUN@TAG or RUN~LINEAGE@STEP")
    return run, View(int(lineage), int(named))


class _Files:
    """The files of a new folder. After an exception they are removed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._made: List[str] = []  # files
        self._own = False  # the folder was made here
        self._file: Any = None
        self.name = ""

    def __enter__(self) -> "_Files":
        try:
            os.makedirs(os.path.dirname(os.path.abspath(self.folder)), exist_ok=True)
            try:
                os.mkdir(self.folder)
                self._own = True
            except FileExistsError:
                if os.listdir(self.folder):
                    raise errors.AlreadyExists(
                        f"folder {self.folder}: it is not empty; export into a new one") from None
        except OSError as error:
            raise self._failed(self.folder, error) from None
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # the first error says why
                self._file.close()
        if kind is not None:
            for path in self._made:
                if os.path.exists(path):
                    os.remove(path)
            if self._own:
                with contextlib.suppress(OSError):  # somebody put a file there
                    os.rmdir(self.folder)

    def _failed(self, path: str, error: OSError) -> errors.Error:
        kind = errors.ResourceExhausted if error.errno in (
            errno.ENOSPC, errno.EDQUOT) else errors.IOFailure
        return kind(f"cannot write {path}: {error.strerror}; nothing was exported: free space, or "
                    "name another folder")

    def _open(self, name: str) -> None:
        self._end()
        path = os.path.join(self.folder, name)
        self._made.append(path)
        self._file, self.name = open(path, "xb"), name

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.flush()
                os.fsync(file.fileno())

    def write(self, value: Any) -> Any:
        """Appends an archive of torch.save; returns its place, as DCP describes it."""
        try:
            if self._file is None or self._file.tell() >= FILE_BYTES:
                self._open(f"__0_{len(self._made)}.distcp")
            begin = self._file.tell()
            torch.save(value, self._file)
            return filesystem._StorageInfo(self.name, begin, self._file.tell() - begin)
        except OSError as error:
            raise self._failed(os.path.join(self.folder, self.name), error) from None
        except RuntimeError as error:  # of torch's writer, when a write of its file has failed
            raise errors.IOFailure(
                f"cannot write {os.path.join(self.folder, self.name)}: {error}; nothing was "
                "exported: free space, or name another folder") from error

    def finish(self, metadata: Metadata) -> None:
        path = os.path.join(self.folder, METADATA)
        try:
            self._open(METADATA + ".tmp")
            pickle.dump(metadata, self._file)
            self._end()
            os.rename(path + ".tmp", path)
            self._made.append(path)
            opened = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
        except OSError as error:
            raise self._failed(path, error) from None


class _Export:
    def __init__(self, held: Any, found: layout.Layout, files: _Files, allow: Any,
                 timeout: float) -> None:
        self._held = held
        self._layout = found
        self._files = files
        self._allow = allow
        self._timeout = timeout
        self._documents = restoring.Documents(held, found, 0)
        self._described: Dict[str, Any] = {}
        self._places: Dict[MetadataIndex, Any] = {}
        self._waiting: List[Tuple[str, Box, int, Any]] = []  # chunks read together
        self._waiting_bytes = 0
        self._reader = transfer.Reader(held, timeout)
        self._bytes = 0

    def run(self, run: str) -> Exported:
        planner = dcp_names.planner_of(self._documents, self._allow)
        entries = dcp_names.entries(self._layout, self._documents, self._allow, planner)
        names: Dict[str, List[str]] = {}  # of DCP, by the tensor in the run: several are tied
        for name, entry in entries.items():
            if entry.kind is not None:
                self._describe(name, entry.kind)
                if entry.name:
                    names.setdefault(entry.name, []).append(name)
                else:
                    self._empty(name, entry.kind)
        for stored, dcp in names.items():
            self._tensor(stored, dcp[0])
        self._flush()
        for name, *others in names.values():
            for other in others:
                self._share(name, other)
        count = len(self._described)
        for name, entry in entries.items():
            if entry.kind is None:
                self._value(name, entry)
        self._files.finish(self._metadata(entries, planner))
        return Exported(run, self._held.view, count, len(entries) - count, self._bytes,
                        self._left_out())

    def _describe(self, name: str, kind: layout.Kind) -> None:
        chunks = [ChunkStorageMetadata(torch.Size(box.offsets), torch.Size(box.sizes))
                  for box in boxes.bands(kind.shape, kind.item_bytes(), CHUNK_BYTES)]
        self._described[name] = TensorStorageMetadata(
            TensorProperties(dtype=transfer.torch_dtype(kind.dtype)), torch.Size(kind.shape),
            chunks)

    def _empty(self, name: str, kind: layout.Kind) -> None:
        data = torch.empty(kind.shape, dtype=transfer.torch_dtype(kind.dtype))
        self._places[_index(name, boxes.whole(kind.shape), 0)] = self._files.write(data)

    def _tensor(self, stored: str, name: str) -> None:
        kind = self._layout.kinds[stored]
        for at, box in enumerate(boxes.bands(kind.shape, kind.item_bytes(), CHUNK_BYTES)):
            size = box.elements() * kind.item_bytes()
            if self._waiting_bytes + size > CHUNK_BYTES:
                self._flush()
            data = torch.empty(box.sizes, dtype=transfer.torch_dtype(kind.dtype))
            self._reader.add_box(self._layout, stored, box, data)
            self._waiting.append((name, box, at, data))
            self._waiting_bytes += size

    def _flush(self) -> None:
        self._reader.flush()
        self._reader.restored.clear()
        self._held.renew()
        for name, box, at, data in self._waiting:
            self._places[_index(name, box, at)] = self._files.write(data)
        self._bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0

    def _share(self, name: str, other: str) -> None:
        """Tied tensors are two items with the same bytes of a file."""
        for at, chunk in enumerate(self._described[name].chunks):
            box = Box(tuple(chunk.offsets), tuple(chunk.sizes))
            self._places[_index(other, box, at)] = self._places[_index(name, box, at)]

    def _value(self, name: str, entry: dcp_names.Entry) -> None:
        value = dcp_names.value_of(self._documents, entry, self._allow)
        self._described[name] = BytesStorageMetadata()
        self._places[MetadataIndex(name)] = self._files.write(value)

    def _metadata(self, entries: Dict[str, dcp_names.Entry], planner: Any) -> Metadata:
        table = planner if isinstance(planner, dict) else {}
        paths = {name: table.get(name, (name,) if entry.kind or not entry.path else
                                 (entry.name, *entry.path)) for name, entry in entries.items()}
        return Metadata(self._described, paths, self._places,
                        StorageMeta(checkpoint_id=self._files.folder),
                        getattr(filesystem, "CURRENT_DCP_VERSION", None))

    def _left_out(self) -> List[str]:
        names = {f"per_rank {name}" for rank in range(self._documents.size)
                 for name in self._documents.names(rank, "rank")}
        names |= {f"unit {unit.name}" for unit in self._layout.units if not unit.tensors}
        return sorted(names)


def _index(name: str, box: Box, at: int) -> MetadataIndex:
    return MetadataIndex(name, box.offsets, at)
