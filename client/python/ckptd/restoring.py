"""Restores a view of a run into a state: tensors in place, plain values into their dicts."""

from typing import (Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set,
                    Tuple)

from . import errors, planning, ties, transfer, values
from .buffers import Memory
from .epoch import View
from .experts import Tokens
from .layout import VALUES_UNIT, Kind, Layout
from .restore import Restore
from .restore import Restored as Version
from .selection import Selection
from .session import Session
from .state import State

NAMED_MAX = 5  # names in an error
HEAD_BYTES = 32 << 10  # of a document, read at once: most are shorter


class Restored(NamedTuple):
    """A restored view."""

    view: Optional[View]  # None: the run had nothing to restore
    units: Dict[str, Version]  # of each unit that this rank read: its version, and a note
    notes: List[str]  # what differs from the view, or from the job that saved it
    per_rank: Dict[str, Any]  # objects that this rank saved as per_rank
    saved_per_rank: Dict[int, Dict[str, Any]]  # if another number of ranks saved: of each of them

    @property
    def step(self) -> Optional[int]:
        return None if self.view is None else self.view.step


class Documents:
    """The documents of values of a view, one for each rank that saved; read when they are needed.
    A run that has none, as after `ckptctl import`, has no values."""

    def __init__(self, restore: Restore, layout: Layout, rank: int, ranks: int = 1) -> None:
        """ranks: of this job; mostly as many have saved."""
        self._restore = restore
        self._unit = next((unit for unit in layout.units if unit.name == VALUES_UNIT), None)
        self._rank = rank
        self._found: Dict[int, values.Document] = {}
        self._heads: Dict[int, bytes] = {}  # first bytes, by offset
        self.size = 0  # ranks that saved
        if self._unit is not None:
            self.size = 1
            self._read_heads(self._unit.bytes or 0, rank, ranks)
            size = self.of(0).extra.get("world")
            if not isinstance(size, int) or not 0 < size <= 1 << 20:
                raise errors.Corrupt(f"{self.of(0).where}: {size!r} is no number of ranks")
            self.size = size

    def of(self, rank: int) -> values.Document:
        if rank not in self._found:
            total = self._unit.bytes or 0 if self._unit is not None else 0
            offset, room = planning.shares(total, self.size)[rank] if rank else (0, total)
            where = f"run {self._restore.session.description.run} unit {VALUES_UNIT}, rank {rank}"
            head = self._heads.get(offset, b"")[:room] or self._read(offset, min(HEAD_BYTES, room))
            length = len(head)
            if length >= values.HEADER.size:
                length = values.document_bytes(head[:values.HEADER.size], room)
            found = values.parse(head[:length] if length <= len(head) else
                                 self._read(offset, length), where)
            if found.needs_blob:
                found = found.with_blob(self._blob(rank, where))
            self._found[rank] = found
        return self._found[rank]

    def _read_heads(self, total: int, rank: int, ranks: int) -> None:
        """Reads the documents of rank 0 and of this rank in one request, if they are short and as
        many ranks saved as there are now."""
        offsets = {0}
        if rank < ranks and total // ranks >= planning.VALUES_SHARE_MIN:
            offsets.add(planning.shares(total, ranks)[rank][0])
        raw = {offset: bytearray(min(HEAD_BYTES, total - offset)) for offset in offsets}
        self._restore.read([(VALUES_UNIT, offset, Memory.of(head))
                            for offset, head in raw.items()])
        self._heads = {offset: bytes(head) for offset, head in raw.items()}

    def _blob(self, rank: int, where: str) -> bytes:
        try:
            return self._restore.read_blob(values.BLOB, rank)
        except errors.NotFound as missing:
            raise errors.NotFound(
                f"{where}: its values are in a blob, which this run does not have: {missing}; an "
                "import does not bring blobs, restore the run that was exported") from None

    def _read(self, offset: int, length: int) -> bytes:
        raw = bytearray(length)
        self._restore.read([(VALUES_UNIT, offset, Memory.of(raw))])
        return bytes(raw)

    def names(self, rank: int, kind: str) -> List[str]:
        prefix = kind + "/"
        return [key[len(prefix):] for key in self.of(rank).names() if key.startswith(prefix)]

    def value(self, rank: int, kind: str, name: str, allow: Any) -> Any:
        return self.of(rank).value(f"{kind}/{name}", name, allow)

    def holder(self, name: str) -> Optional[int]:
        """The lowest rank that saved the value."""
        for rank in range(self.size):
            if self.of(rank).has(f"state/{name}"):
                return rank
        return None


def _list(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = len(ordered) - NAMED_MAX
    return ", ".join(ordered[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


class Match(NamedTuple):
    """Which stored tensor fills which of this rank, and from which rank's document a value is."""

    tensors: Dict[str, str]
    values: Dict[str, int]


def match(state: State, layout: Layout, documents: Documents, everyone: Set[str],
          allow: Sequence[str], run: str, rank: int,
          aliases_of_all: Mapping[str, str] = {}) -> Match:
    """Strict in both directions, but for names that match a pattern of `allow`. `everyone`: names
    of all ranks. A rank without elements of a tensor cannot see that it is tied: aliases_of_all
    tells."""
    extra = documents.of(0).extra if documents.size else {}
    aliases, empty = extra.get("aliases", {}), extra.get("empty", {})
    found = Match({}, {})
    missing: Set[str] = set()
    used: Set[str] = set()
    own, others = ties.names_of(state.aliases), ties.names_of(aliases_of_all)
    for name in state.held:
        names = own.get(name, [name])
        if not state.pieces[name]:
            names = others.get(aliases_of_all.get(name, name), names)
        stored = {aliases.get(one, one) for one in names if aliases.get(one, one) in layout.kinds}
        used |= stored
        if len(stored) > 1:
            raise errors.InvalidArgument(
                f"tensor {name}: {_list(names)} are tied on rank {rank}, and run {run} has "
                f"different bytes for {_list(stored)}; untie them before the restore")
        if not stored:
            missing.add(name)
            continue
        found.tensors[name] = stored.pop()
        _same_kind(name, state.held[name].kind, layout.kinds[found.tensors[name]], run, rank)
    for name, kind in state.empty.items():
        if name not in empty and name not in layout.kinds:
            missing.add(name)
        elif name in layout.kinds:
            _same_kind(name, kind, layout.kinds[name], run, rank)
    for name in state.values:
        holder = documents.holder(name)
        if holder is None:
            missing.add(name)
        else:
            found.values[name] = holder
    have = set(layout.kinds) | set(documents.names(0, "state") if documents.size else [])
    allowed = planning.Patterns(allow).match
    _raise_strict({name for name in missing if not allowed(name)},
                  {name for name in have - used - everyone if not allowed(name)}, run, rank)
    return found


def _same_kind(name: str, mine: Kind, stored: Kind, run: str, rank: int) -> None:
    if mine != stored:
        raise errors.InvalidArgument(
            f"tensor {name}: {mine} on rank {rank}, and {stored} in run {run}; build the model as "
            "it was saved")


def _raise_strict(missing: Set[str], unexpected: Set[str], run: str, rank: int) -> None:
    if missing:
        raise errors.InvalidArgument(
            f"run {run}: it does not have {_list(missing)}, which the state of rank {rank} has; "
            "pass allow=[patterns] to leave these as they are")
    if unexpected:
        raise errors.InvalidArgument(
            f"run {run}: it also has {_list(unexpected)}, which no rank's state has; pass "
            "allow=[patterns] to do without. An optimizer has its state after its first step, or "
            "from torch.distributed.checkpoint.state_dict.get_optimizer_state_dict")


def fill(restore: Restore, layout: Layout, state: State, found: Match,
         timeout: float) -> List[Version]:
    """Reads this rank's boxes into its tensors."""
    reader = transfer.Reader(restore, timeout)
    for name, stored in found.tensors.items():
        for piece in state.pieces[name]:
            reader.add_box(layout, stored, piece.box, piece.data)
    reader.flush()
    return reader.restored


def by_unit(found: Iterable[Version]) -> Tuple[Dict[str, Version], List[str]]:
    """The oldest version of each unit with summed bytes, and the notes."""
    units: Dict[str, Version] = {}
    for one in found:
        other = units.get(one.unit)
        if other is not None:
            oldest = min(one, other, key=lambda version: version.version.step)
            one = oldest._replace(bytes_memory=one.bytes_memory + other.bytes_memory,
                                  bytes_disk=one.bytes_disk + other.bytes_disk)
        units[one.unit] = one
    return units, [f"unit {one.unit}: {one.note}" for one in units.values() if one.note]


def per_rank(documents: Documents, rank: int, size: int,
             allow: Any) -> Tuple[Dict[str, Any], Dict[int, Dict[str, Any]], List[str]]:
    """(objects of this rank, of all saved ranks if their number differs, notes)."""
    if not documents.size:
        return {}, {}, []
    if documents.size == size:
        return {name: documents.value(rank, "rank", name, allow)
                for name in documents.names(rank, "rank")}, {}, []
    saved = {one: {name: documents.value(one, "rank", name, allow)
                   for name in documents.names(one, "rank")} for one in range(documents.size)}
    names = {name for objects in saved.values() for name in objects}
    if not names:
        return {}, {}, []
    return {}, saved, [
        f"per_rank {_list(names)}: saved by {documents.size} ranks, and this job has {size}; "
        "nothing was given back: choose from Restored.saved_per_rank"]


def continue_counts(session: Session, target: str, extra: Mapping[str, Any], tokens: Tokens,
                    chosen: Optional[Selection]) -> int:
    """Continues the counts of tokens, and the choice of experts, from a view of the run. Returns
    the turn of the next save. target: the view. extra: of rank 0's document."""
    turn = int(extra.get("turn", -1)) + 1
    counted = extra.get("tokens", {})
    layers = session.query("experts", target=target)["layers"] if (
        counted or chosen is not None) else []
    tokens.load(counted, layers if counted else [])
    if chosen is not None:
        chosen.load(turn, extra.get("saves", []), tokens, layers)
    return turn
