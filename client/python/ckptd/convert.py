"""Conversions between a run and a DCP folder, in memory that does not grow with the state.

    convert.import_dcp("checkpoints/step-100", "tiny")     # a new run with one commit
    convert.export_dcp("tiny@100", "exported/step-100")    # a folder for dcp.load

An import gives tensors and experts the names and units that ckptd.Saver gives them."""

import io
import operator
import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from . import (_abi, boxes, dcp_archive, dcp_folder, dcp_names, errors, flatten, joining, layout,
               values)
from .boxes import Box
from .dcp_export import Exported, export_dcp
from .epoch import Epoch, View
from .pending import Patience
from .session import Session
from .snapshot import Level, Snapshot

ROOM = 16 << 20  # of the two buffers of an import
RANK_BYTES = 1 << 20  # room for the values of each rank of later saves: values_bytes of Saver
RANKS_MAX = 256  # whose room is made
ITEM_BYTES = 4096  # of an item of a small value: an archive with little in it
Readable = Union[dcp_archive.Tensor, dcp_archive.Held]


class Imported(NamedTuple):
    run: str
    view: View
    tensors: int
    units: int
    experts: int
    values: int
    bytes: int
    alarms: Optional[str]  # what looks wrong, in a sentence


class _State(NamedTuple):
    """A folder's state as Saver names it."""

    tensors: Dict[str, Readable]
    empty: Dict[str, layout.Kind]
    values: List[Tuple[str, str, Any]]  # (key, name, value) of a document
    aliases: Dict[str, str]


def import_dcp(folder: str, run: str, step: Optional[int] = None, *, socket: Optional[str] = None,
               ties: Mapping[str, str] = {}, allow_pickle: Sequence[str] = (),
               timeout: float = 300.0, **session: Any) -> Imported:
    """Makes a new run with one commit of a DCP folder. Nothing is committed if it fails.

    step: default the number at the end of the folder's name. ties: names of tied tensors, with the
    name whose bytes are stored; the folder must have equal bytes for both. allow_pickle: names of
    values whose pickles may run code. session: options of Session; it takes an arena of 32 MiB."""
    found = dcp_folder.read(folder)
    step = _step_of(folder) if step is None else step
    files = dcp_archive.Files(folder)
    try:
        state = _examine(found, files, tuple(allow_pickle))
        buffers = torch.empty(ROOM, dtype=torch.uint8), torch.empty(ROOM, dtype=torch.uint8)
        for name, target in ties.items():
            _tie(state, name, target, buffers, folder)
        options = {"socket": socket, "arena_bytes": joining.READER_BYTES_MAX,
                   "slab_bytes": joining.READER_SLAB_BYTES, **session}
        with Session(run, **options) as opened:
            _check_new(opened, run)
            return _Import(opened, found, state, step, tuple(allow_pickle), timeout).run(buffers)
    finally:
        files.close()


def _step_of(folder: str) -> int:
    named = re.search(r"(\d+)/*$", str(folder))
    if not named:
        raise errors.InvalidArgument(
            f"folder {folder}: its name does not end with a number, the step; name the step")
    return int(named.group(1))


# ---- the folder ----------------------------------------------------------------------------


def _examine(folder: dcp_folder.Folder, files: dcp_archive.Files,
             allow: Tuple[str, ...]) -> _State:
    """Reads all descriptions and values, so that most errors come before the run exists."""
    for name, stored in folder.tensors.items():
        dcp_archive.Tensor(files, name, stored).check()
    _check_room(folder)

    def leaf(name: str) -> Any:
        if name in folder.tensors:
            return dcp_names.Placeholder(name)
        return _value(folder, files, name, name in allow)
    where = os.path.join(folder.path, dcp_folder.METADATA)
    try:
        flat = dcp_names.flat_state([*folder.tensors, *folder.values], folder.paths, leaf, where)
    except RecursionError:
        raise errors.InvalidArgument(f"{where}: a value is nested too deep") from None
    state = _State({}, {}, [], {})
    for name, found in flat.tensors.items():
        tensor = found.value
        if isinstance(tensor, dcp_names.Placeholder):
            stored = folder.tensors[tensor.name]
            readable: Readable = dcp_archive.Tensor(files, tensor.name, stored)
        else:
            readable = dcp_archive.Held(tensor, _kind(tensor, name))
        if boxes.product(readable.kind.shape):
            state.tensors[name] = readable
        else:
            state.empty[name] = readable.kind
    state.values.extend((f"state/{name}", name, found.value) for name, found in flat.values.items())
    if not state.tensors and not state.values:
        raise errors.InvalidArgument(f"{where}: it describes nothing to import")
    return state


def _kind(tensor: Any, name: str) -> layout.Kind:
    from . import transfer
    transfer.check(tensor, f"tensor {name}")
    return layout.Kind(transfer.dtype_name(tensor), tuple(tensor.shape))


def _check_room(folder: dcp_folder.Folder) -> None:
    """Values are in memory at once, and a commit keeps so many bytes of them."""
    sizes = {name: item.length - ITEM_BYTES for name, item in folder.values.items()
             if item.length > ITEM_BYTES}
    if sum(sizes.values()) > values.BLOB_BYTES_MAX:
        largest = max(sizes, key=lambda name: sizes[name])
        raise errors.InvalidArgument(
            f"folder {folder.path}: its values have {sum(sizes.values())} bytes, {sizes[largest]} "
            f"of them in {largest}, and a run keeps {values.BLOB_BYTES_MAX}; save it as tensors, "
            "or leave it out")


def _value(folder: dcp_folder.Folder, files: dcp_archive.Files, name: str, trusted: bool) -> Any:
    item = folder.values[name]
    dcp_archive.records(files, item, name)
    raw = files.bytes_of(item, name)
    try:
        return torch.load(io.BytesIO(raw), map_location="cpu", weights_only=not trusted)
    except Exception as error:
        if trusted:
            raise errors.Corrupt(
                f"{files.path(item.file)}: value {name}: {type(error).__name__}: "
                f"{error}") from error
        raise errors.InvalidArgument(
            f"{files.path(item.file)}: value {name} is a pickle of objects, which can run code; "
            f"leave it out of the save or, if you trust the folder, allow it: --allow-pickle "
            f'{name}, or allow_pickle=["{name}"]') from error


def _tie(state: _State, name: str, target: str, buffers: Any, folder: str) -> None:
    for one in (name, target):
        if one not in state.tensors:
            raise errors.InvalidArgument(f"folder {folder}: it has no tensor {one} to tie")
    if name == target or name in state.aliases.values():
        raise errors.InvalidArgument(
            f"folder {folder}: tensor {name} cannot be tied to {target}: other names are tied to "
            "it; tie all of them to one")
    kind = state.tensors[name].kind
    if kind != state.tensors[target].kind:
        raise errors.InvalidArgument(
            f"folder {folder}: tensors {name} and {target} cannot be tied: {kind} and "
            f"{state.tensors[target].kind}")
    through = torch.empty(ROOM, dtype=torch.uint8)
    for box in boxes.bands(kind.shape, kind.item_bytes(), ROOM):
        both = []
        for one, buffer in ((name, buffers[0]), (target, buffers[1])):
            both.append(_room(buffer, box.sizes, kind))
            state.tensors[one].read(box, both[-1], through)
        if not torch.equal(*both):
            raise errors.InvalidArgument(
                f"folder {folder}: tensors {name} and {target} have different bytes; do not tie "
                "them")
    state.tensors[target].close()
    state.tensors.pop(name).close()
    state.aliases[name] = target


def _room(buffer: Any, sizes: Sequence[int], kind: layout.Kind) -> Any:
    """The start of a buffer as bytes [*sizes, bytes of an element]."""
    item = kind.item_bytes()
    return buffer[:boxes.product(sizes) * item].view(*sizes, item)


# ---- the run -------------------------------------------------------------------------------


def _check_new(session: Session, run: str) -> None:
    try:
        commits = session.query("log", target=run, limit=1)
    except errors.NotFound:
        return
    if commits:
        raise errors.AlreadyExists(
            f"run {run}: it exists, with step {commits[0]['step']}; import into a new run, or "
            f"remove this one with: ckptctl rm {run}")


class _Import:
    """Writes a state into a new run, unit by unit."""

    def __init__(self, session: Session, folder: dcp_folder.Folder, state: _State, step: int,
                 allow: Tuple[str, ...], timeout: float) -> None:
        self._session = session
        self._state = state
        self._step = step
        self._allow = allow
        self._timeout = timeout
        self._written = False  # all of it: from then on the daemon may commit it
        kinds = {name: tensor.kind for name, tensor in state.tensors.items()}
        room = RANK_BYTES * min(folder.ranks, RANKS_MAX)
        self._layout = layout.of_tensors(kinds, room)
        extra = {"world": 1, "rank": 0, "step": step, "aliases": state.aliases,
                 "empty": state.empty}
        document = [*state.values, ("dcp/planner", "planner_data", folder.paths)]
        self._document, self._blob = values.split(document, extra, self._may_pickle, 0, room)

    def _may_pickle(self, name: str) -> bool:
        """True if the value, a part of it, or the value that it is a part of is allowed."""
        return any((flatten.canonical(one) + ".").startswith(name + ".") or
                   (name + ".").startswith(flatten.canonical(one) + ".") for one in self._allow)

    def run(self, buffers: Any) -> Imported:
        session, run = self._session, joining.run_of(self._session)
        self._layout = joining.register(session, self._layout, self._timeout)
        epoch = joining.join(session, 0, 1, "start", 0, self._timeout)
        try:
            with Patience(session, max(self._timeout, 2.0)):
                alarms = self._write_all(epoch, buffers)
        except errors.Error as error:
            unknown = self._written and isinstance(
                error, (errors.Unavailable, errors.DeadlineExceeded))
            said = f"it may be committed: look with `ckptctl log {run}`" if unknown else (
                "nothing was committed")
            raise type(error)(f"run {run} step {self._step}: {said}: {error}") from error
        epoch.leave()
        experts = {(unit.layer, unit.expert) for unit in self._layout.units
                   if unit.expert is not None}
        return Imported(run, View(epoch.lineage, self._step), len(self._state.tensors),
                        len(self._layout.units), len(experts), len(self._state.values),
                        sum(unit.bytes or 0 for unit in self._layout.units) + len(self._blob),
                        alarms)

    def _write_all(self, epoch: Epoch, buffers: Any) -> Optional[str]:
        blobs = {values.BLOB: len(self._blob)} if self._blob else None
        with epoch.begin(self._step, streams=True, blobs=blobs, timeout=self._timeout) as snapshot:
            self._write(snapshot, buffers)
            if self._blob:
                snapshot.write_blob(values.BLOB, self._blob)
            self._written = True
        return snapshot.wait(Level.DURABLE, self._timeout).alarms

    def _write(self, snapshot: Snapshot, buffers: Any) -> None:
        parts: Dict[str, List[Tuple[int, str, layout.Place]]] = {}
        left: Dict[str, int] = {}
        for name, places in self._layout.places.items():
            left[name] = len(places)
            for place in places:
                parts.setdefault(place.unit, []).append((place.offset, name, place))
        for unit in self._layout.units:
            for _, name, place in sorted(parts.get(unit.name, []), key=lambda part: part[:2]):
                if place.block is not None and left[name] == len(self._layout.places[name]):
                    self._read_whole(name, buffers)
                self._write_part(snapshot, name, place, buffers)
                left[name] -= 1
                if left[name] == 0:
                    self._state.tensors[name].close()
            if unit.name == layout.VALUES_UNIT:
                self._write_values(snapshot, unit.bytes or 0)

    def _read_whole(self, name: str, buffers: Any) -> None:
        """Reads a tensor in the order of its bytes, which checks them: blocks are read by rows."""
        tensor = self._state.tensors[name]
        for box in boxes.bands(tensor.kind.shape, tensor.kind.item_bytes(), ROOM):
            tensor.read(box, _room(buffers[0], box.sizes, tensor.kind), buffers[1])

    def _write_part(self, snapshot: Snapshot, name: str, place: layout.Place,
                    buffers: Any) -> None:
        tensor, number = self._state.tensors[name], self._session.unit(place.unit)[0]
        part, offset = self._layout.box_of(name, place), place.offset
        for band in boxes.bands(part.sizes, tensor.kind.item_bytes(), ROOM):
            box = Box(tuple(map(operator.add, part.offsets, band.offsets)), band.sizes)
            target = _room(buffers[0], box.sizes, tensor.kind)
            for run in boxes.run_boxes(tensor.kind.shape, box):  # rows, if this is a block
                begin = tuple(map(operator.sub, run.offsets, box.offsets))
                tensor.read(run, boxes.narrow(target, begin, run.sizes), buffers[1])
            piece = _abi.ckpt_piece(unit=number, offset=offset, length=target.numel(),
                                    data=target.data_ptr())
            snapshot.write_pieces((_abi.ckpt_piece * 1)(piece))
            offset += target.numel()

    def _write_values(self, snapshot: Snapshot, size: int) -> None:
        snapshot.write(layout.VALUES_UNIT, self._document)
        zeros = bytes(RANK_BYTES)
        for begin in range(len(self._document), size, RANK_BYTES):
            snapshot.write(layout.VALUES_UNIT, zeros[:size - begin], begin)


__all__ = ["Exported", "Imported", "export_dcp", "import_dcp"]
