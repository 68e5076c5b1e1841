"""The plan of a run: what each rank holds, and who saves which bytes. Pure; imports no torch.

Every rank declares what it holds. All ranks merge the declarations alike, so that a later save
needs no communication. Pieces that several ranks hold are saved once, spread by bytes."""

import array
import ctypes
import fnmatch
import glob
from typing import (Any, Callable, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional,
                    Sequence, Set, Tuple)

from . import _abi, errors, ties
from ._collector import paused
from .arranging import BLOCKS_MAX
from .boxes import WHOLE, Box, part_of, product, run_count, runs, split
from .layout import VALUES_UNIT, Kind, Layout

FRAGMENTS_MAX = 1 << 22  # of one snapshot: ckptd's own limit
SPLIT_BYTES_MIN = 1 << 20  # replicated pieces are not cut into smaller parts
SHARE_ALIGN = 4096
VALUES_SHARE_MIN = 4096
KNOWN_RUNS_MAX = 16  # of one box; longer lists are not kept


class Held(NamedTuple):
    """The part of a tensor that one rank holds."""

    kind: Kind
    boxes: Tuple[Box, ...]
    plain: bool


class Declared(NamedTuple):
    """Message of one rank to the others: plain data, sent once."""

    rank: int
    tensors: Dict[str, Held]
    aliases: Dict[str, str]  # tied name -> the name whose bytes are stored
    empty: Dict[str, Kind]  # tensors without elements
    values: Tuple[str, ...]
    options: Dict[str, Any]  # must be equal on all ranks
    store: Optional[str] = None  # of the daemon; None: unknown
    error: Optional[Tuple[str, str]] = None  # class and sentence: this rank refused its state
    config: Any = None  # of the model, in the run's metadata: that of rank 0 counts
    first: Tuple[str, ...] = ()  # of each tie, the name that comes first in the rank's state


class Write(NamedTuple):
    """One run list of this rank. The data is box `piece` of the tensor, cut by dim, start, size;
    then its row `index`, if any; then the part `within` that belongs to one block."""

    name: str
    piece: int
    cut: Tuple[int, int, int]
    index: Optional[int]  # row within the cut piece, of stacked tensors
    within: Tuple[int, int, int]  # WHOLE: all of it
    unit: int
    offset: int
    length: int  # elements of a run
    starts: List[int]


class Agreed(NamedTuple):
    """The merged declarations."""

    kinds: Dict[str, Kind]
    holders: Dict[str, List[Tuple[Box, List[int]]]]  # distinct boxes of a tensor, and their ranks
    shared: Dict[str, List[int]]  # plain tensors of several ranks that must have equal bytes
    values: Dict[str, List[int]]  # ranks that have the value; the first one saves it
    aliases: Dict[str, str]
    empty: Dict[str, Kind]
    size: int
    first: List[str]  # of each tie, the name that comes first in the state of the lowest rank
    common: Dict[str, Set[str]]  # of each tie, the names that all ranks with its memory have
    constant: List[str]  # patterns of tensors that may stay unchanged, whichever name is stored

    def shared_content(self, decided: Callable[[str], bool]) -> List[Tuple[str, str, List[int]]]:
        """("tensor" or "value", name, ranks) of what several ranks must have alike; `decided` says
        of a value that one rank's content counts."""
        values = {name: ranks for name, ranks in self.values.items()
                  if len(ranks) > 1 and not decided(name)}
        return sorted((kind, name, ranks)
                      for kind, found in (("tensor", self.shared), ("value", values))
                      for name, ranks in found.items())

    def store_ties_as(self, names: Collection[str]) -> Dict[str, str]:
        """Tied tensors get these names, where all ranks that hold a tie have one. Returns the new
        names, by the old ones."""
        chosen = ties.choose(self.aliases, names, self.common)
        ties.rename(self.aliases, (self.kinds, self.holders, self.shared, self.common), chosen)
        return chosen

    def names(self) -> Set[str]:
        return set(self.kinds) | set(self.values) | set(self.aliases) | set(self.empty)


class Patterns(Tuple[str, ...]):
    """Patterns of names."""

    def match(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self)


def check_errors(declared: Sequence[Declared]) -> None:
    """Raises what any rank found wrong with its own state: the same on all ranks."""
    for one in declared:
        if one.error:
            kind, text = one.error
            raise getattr(errors, kind, errors.InvalidArgument)(text)
    for one in declared:
        for name, value in one.options.items():
            if value != declared[0].options[name]:
                raise errors.InvalidArgument(
                    f"option {name}: {declared[0].options[name]!r} on rank 0, {value!r} on rank "
                    f"{one.rank}; give all ranks the same")
    check_stores([one.store for one in declared])


def check_stores(stores: Sequence[Optional[str]]) -> None:
    """Refuses a group whose ranks use different stores. stores: by rank; None: unknown."""
    first: Dict[str, int] = {}
    for rank, store in enumerate(stores):
        if store:
            first.setdefault(store, rank)
    if len(first) > 1:
        (one, rank), (other, second) = list(first.items())[:2]
        raise errors.InvalidArgument(
            f"group: rank {rank} uses the store {one}, rank {second} the store {other}; a run "
            "lives in one store: save each node's part into a run of its own, with the group of "
            "its ranks")


@paused()
def merge(declared: Sequence[Declared], decided: Callable[[str], bool] = lambda name: False,
          constant: Sequence[str] = ()) -> Agreed:
    """decided: of tensors of this name, or tied to it, the lowest rank's are saved. constant:
    patterns of tensors that may stay unchanged."""
    agreed = Agreed({}, {}, {}, {}, {}, {}, len(declared), [], {}, [*constant])
    first: Dict[str, int] = {}
    plain: Dict[str, List[int]] = {}
    boxes: Dict[str, Dict[Box, List[int]]] = {}
    tied = {name for one in declared for name in one.aliases}
    for one in declared:
        for name, held in one.tensors.items():
            if name in tied and not held.boxes:
                continue  # this rank has no elements, and cannot see that the tensor is tied
            kind = agreed.kinds.setdefault(name, held.kind)
            first.setdefault(name, one.rank)
            if kind != held.kind:
                raise errors.InvalidArgument(
                    f"tensor {name}: {kind} on rank {first[name]}, {held.kind} on rank {one.rank}; "
                    "give different tensors different names, or shard it with DTensor")
            for box in held.boxes:
                boxes.setdefault(name, {}).setdefault(box, []).append(one.rank)
            if held.plain:
                plain.setdefault(name, []).append(one.rank)
        agreed.empty.update(one.empty)
        for name in one.values:
            agreed.values.setdefault(name, []).append(one.rank)
        for name, target in one.aliases.items():
            if agreed.aliases.setdefault(name, target) != target:
                raise errors.InvalidArgument(
                    f"tensor {name}: rank {one.rank} ties it to {target}, another rank to "
                    f"{agreed.aliases[name]}; tie it alike on all ranks")
    _check_kinds(agreed)
    names_of = ties.names_of(agreed.aliases)
    _merge_ties(agreed, declared, names_of)
    for name, kind in agreed.kinds.items():
        found = boxes.get(name, {})
        _check_whole(name, kind, found)
        agreed.holders[name] = sorted(found.items())
        if len(plain.get(name, ())) > 1:
            if any(decided(one) for one in names_of.get(name, [name])):
                agreed.holders[name] = [(box, ranks[:1]) for box, ranks in agreed.holders[name]]
            else:
                agreed.shared[name] = plain[name]
    return agreed


def _merge_ties(agreed: Agreed, declared: Sequence[Declared],
                names_of: Mapping[str, Sequence[str]]) -> None:
    for names in names_of.values():
        if any(map(Patterns(agreed.constant).match, names)):
            agreed.constant.extend(map(glob.escape, names))
    agreed.common.update(ties.common(agreed.aliases, [
        ({name for name, held in one.tensors.items() if held.boxes}, one.aliases)
        for one in declared]))
    seen: Set[str] = set()
    for one in declared:
        for name in one.first:
            stored = agreed.aliases.get(name, name)
            if stored not in seen and name in agreed.common.get(stored, ()):
                seen.add(stored)
                agreed.first.append(name)


def _check_kinds(agreed: Agreed) -> None:
    for name in agreed.values:
        if name in agreed.kinds or name in agreed.aliases:
            raise errors.InvalidArgument(
                f"tensor {name}: it is a tensor on one rank and a plain value on rank "
                f"{agreed.values[name][0]}; give them different names")
    for name in agreed.aliases:
        if name in agreed.kinds:
            raise errors.InvalidArgument(
                f"tensor {name}: it is tied to {agreed.aliases[name]} on some ranks alone; tie it "
                "alike on all ranks")


def _check_whole(name: str, kind: Kind, boxes: Iterable[Box]) -> None:
    held, total = sum(box.elements() for box in boxes), product(kind.shape)
    if held != total:
        how = "only " if held < total else ""
        raise errors.InvalidArgument(
            f"tensor {name}: the ranks hold {how}{held} of its {total} elements, in {kind}; "
            "declare how it is sharded, on every rank that holds a part")


def shares(total: int, size: int) -> List[Tuple[int, int]]:
    """(offset, bytes) of each rank's share of the unit of values."""
    share = total // size // SHARE_ALIGN * SHARE_ALIGN
    if share < VALUES_SHARE_MIN:
        raise errors.InvalidArgument(
            f"unit {VALUES_UNIT}: its {total} bytes are too few for {size} ranks; save into a new "
            "run with Saver(values_bytes=...)")
    return [(rank * share, share if rank + 1 < size else total - rank * share)
            for rank in range(size)]


class Plan:
    """Fragments of all ranks and the writes of this one, by unit."""

    @paused()
    def __init__(self, agreed: Agreed, layout: Layout, rank: int, mine: Dict[str, Held],
                 values_bytes: int) -> None:
        self.rank = rank
        self.numbers = {unit.name: number for number, unit in enumerate(layout.units)}
        self.writes: Dict[int, List[Write]] = {}
        self.bytes_mine = 0
        self._fragments: Dict[int, array.array] = {}
        self._count = 0
        self._known_runs: Dict[Tuple[Tuple[int, ...], Box], Tuple[int, List[int]]] = {}
        self._last: Tuple[Tuple[int, ...], Any] = ((), None)
        self._layout = layout
        self._load = [0] * agreed.size
        self._worst = (0, "")
        pieces = {name: {box: at for at, box in enumerate(held.boxes)}
                  for name, held in mine.items()}
        order = sorted(((product(box.sizes) * agreed.kinds[name].item_bytes(), name, box, ranks)
                        for name, held in agreed.holders.items() for box, ranks in held),
                       key=lambda item: (-item[0], item[1], item[2]))
        for size, name, box, ranks in order:
            self._assign(size, name, box, ranks, pieces.get(name, {}).get(box))
        self.shares = shares(values_bytes, agreed.size)
        for owner, (offset, length) in enumerate(self.shares):
            self._add(self.numbers[VALUES_UNIT], owner, offset, length)
        if self._count > FRAGMENTS_MAX:
            raise errors.InvalidArgument(
                f"tensor {self._worst[1]}: it is cut into {self._worst[0]} rows, and all tensors "
                f"into {self._count}, above {FRAGMENTS_MAX}; shard large tensors along their first "
                "dimension, or along one later dimension as the run's first save did, which makes "
                f"at most {BLOCKS_MAX} blocks; a new run may be sharded anew")

    def _assign(self, size: int, name: str, box: Box, ranks: List[int],
                piece: Optional[int]) -> None:
        """Spreads a box over the ranks that hold it."""
        parts = max(min(len(ranks), size // SPLIT_BYTES_MIN), 1)
        if parts == 1:
            owner = self._least_loaded(ranks)
            self._load[owner] += size
            self._place(name, box, WHOLE, owner, piece)
            return
        for cut in split(box, parts):
            part = part_of(box, *cut)
            owner = self._least_loaded(ranks)
            self._load[owner] += part.elements() * self._layout.kinds[name].item_bytes()
            self._place(name, part, cut, owner, piece)

    def _least_loaded(self, ranks: List[int]) -> int:
        if len(ranks) == 1:
            return ranks[0]
        return min(ranks, key=lambda rank: (self._load[rank], rank))

    def _place(self, name: str, part: Box, cut: Tuple[int, int, int], owner: int,
               piece: Optional[int]) -> None:
        item = self._layout.kinds[name].item_bytes()
        last = None
        for place, shape, box, index, within in self._layout.parts(name, part):
            if box is not last:  # all slices of a stacked tensor mostly have the same
                last, count = box, run_count(shape, box)
                self._worst = max(self._worst, (count, name))
                fits = self._count + count <= FRAGMENTS_MAX
                length, starts = self._runs(shape, box, count) if fits else (0, [])
            self._count += count
            if self._count > FRAGMENTS_MAX:
                continue  # only counted for the message
            unit = self.numbers[place.unit]
            for start in starts:
                self._add(unit, owner, place.offset + start * item, length * item)
            if owner == self.rank and piece is not None:
                self.writes.setdefault(unit, []).append(
                    Write(name, piece, cut, index, within, unit, place.offset, length, starts))
                self.bytes_mine += length * len(starts) * item

    def _runs(self, shape: Tuple[int, ...], box: Box, count: int) -> Tuple[int, List[int]]:
        """Runs of a box. Many tensors have the same shape and sharding."""
        found = self._known_runs.get((shape, box))
        if found is None:
            found = runs(shape, box)
            if count <= KNOWN_RUNS_MAX:
                self._known_runs[shape, box] = found
        return found

    def _add(self, unit: int, rank: int, offset: int, length: int) -> None:
        fragments = self._fragments.get(unit)
        if fragments is None:
            fragments = self._fragments[unit] = array.array("Q")
        fragments.extend((rank | unit << 32, offset, length))

    def units(self) -> List[int]:
        """Units to save, ascending: all but those that the run got by a state with more tensors."""
        return [number for number, unit in enumerate(self._layout.units)
                if number in self._fragments or not unit.grown]

    def ranks(self, unit: int) -> List[int]:
        """Ranks that save bytes of the unit."""
        return sorted({word & 0xFFFFFFFF for word in self._fragments.get(unit, ())[::3]})

    def fragments(self, units: Sequence[int]) -> Any:
        """ckpt_fragment of all ranks for these units, as the C ABI takes them. The last answer is
        kept, since most saves have the same units."""
        wanted = tuple(units)
        if self._last[1] is None or self._last[0] != wanted:
            self._last = wanted, self._collect(wanted)
        return self._last[1]

    def _collect(self, units: Sequence[int]) -> Any:
        flat = array.array("Q")
        for unit in units:
            flat.extend(self._fragments.get(unit, array.array("Q")))
        count = len(flat) // 3
        return (_abi.ckpt_fragment * count).from_buffer(flat) if count else (
            _abi.ckpt_fragment * 0)()


assert ctypes.sizeof(_abi.ckpt_fragment) == 24  # rank and unit in one 64-bit word, offset, length
