"""Layout: which unit, at which offset, has the bytes of a tensor. Pure; imports no torch.

A new run's layout is made of the tensors' names (see `rules`): one unit per expert, of stacked
tensors one slice per expert, and one unit for each other tensor. Tensors and slices that ranks hold
in many short runs are stored in blocks (see `blocks`). An existing run's layout is read from its
schema, so that runs of `ckptctl import` and of other programs can be restored, too."""

import fnmatch
from typing import (Any, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from . import arranging, blocks, errors, rules
from ._collector import paused
from .blocks import Cut
from .boxes import WHOLE, Box, product
from .units import DTYPE_BITS, Tensor, Unit

VALUES_UNIT = "trainer"  # exports of ckptctl leave this unit out
UNIT_NAME_MAX = 240  # with room for a number behind it
_FLOATS = ("F16", "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ",
           "F8_E5M2FNUZ", "C64", "F4", "F6_E2M3", "F6_E3M2")


class Kind(NamedTuple):
    """Dtype, by its name in safetensors, and shape of a full tensor."""

    dtype: str
    shape: Tuple[int, ...]

    def item_bytes(self) -> int:
        return DTYPE_BITS[self.dtype] // 8

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class Place(NamedTuple):
    """Where a tensor lies, or slice `index` of its first dimension, or a block of either."""

    unit: str
    offset: int
    index: Optional[int] = None
    block: Optional[Tuple[int, int, int]] = None  # dimension of the tensor or slice, start, stop


class Part(NamedTuple):
    """The part of a box of a tensor that lies at one place. Its memory is found in that of the
    box: the row `index` of the first dimension, if any; then the part `within` of that."""

    place: Place
    shape: Tuple[int, ...]  # stored at the place
    box: Box  # within that shape
    index: Optional[int]
    within: Tuple[int, int, int]  # dimension, start, size; or WHOLE


class Layout:
    """Units in the order of the run, and the places of each tensor."""

    def __init__(self) -> None:
        self.units: List[Unit] = []
        self.kinds: Dict[str, Kind] = {}
        self.places: Dict[str, List[Place]] = {}  # in the order of slices, and of blocks in each
        # How a tensor with blocks, or each of its slices, is cut, and its first place.
        self.cuts: Dict[str, List[Tuple[Optional[Cut], int]]] = {}

    def unit_names(self) -> List[str]:
        return [unit.name for unit in self.units]

    def parts(self, name: str, box: Box) -> Iterator[Part]:
        """A box of a tensor, by the places that it touches."""
        shape, places, first, count = self.kinds[name].shape, self.places[name], 0, 1
        sliced = places[0].index is not None
        if sliced:
            (first, *offsets), (count, *sizes) = box
            shape, box = shape[1:], Box(tuple(offsets), tuple(sizes))
        cuts = self.cuts.get(name)
        if cuts is None:
            for row, place in enumerate(places[first:first + count]):
                yield Part(place, shape, box, row if sliced else None, WHOLE)
            return
        last: Optional[Cut] = None
        found = whole = [blocks.Part(0, shape, box, WHOLE)]
        for row, (cut, begin) in enumerate(cuts[first:first + count]):
            if cut is not last:  # most slices have the same
                last, found = cut, list(cut.parts(shape, box)) if cut else whole
            for number, stored, part, within in found:
                yield Part(places[begin + number], stored, part, row if sliced else None, within)

    def box_of(self, name: str, place: Place) -> Box:
        """The elements of a tensor that lie at one of its places."""
        sizes = list(self.kinds[name].shape)
        offsets = [0] * len(sizes)
        if place.index is not None:
            offsets[0], sizes[0] = place.index, 1
        if place.block is not None:
            dim = place.block[0] + (place.index is not None)
            offsets[dim], sizes[dim] = place.block[1], place.block[2] - place.block[1]
        return Box(tuple(offsets), tuple(sizes))


def _check_names(kinds: Mapping[str, Kind]) -> None:
    """Refuses tensors that a reader would take for blocks of one tensor."""
    names = list(kinds)
    for base, joined in blocks.join([(name, *kinds[name]) for name in names]).items():
        raise errors.InvalidArgument(
            f"tensor {names[joined.members[0]]}: it is named like a block of {base!r}, and a "
            "restore would join them; give it another name")


@paused()
def of_tensors(kinds: Mapping[str, Kind], values_bytes: int, constant: Sequence[str] = (),
               held: Mapping[str, Sequence[Tuple[Box, Any]]] = {},
               run: Optional[Layout] = None) -> Layout:
    """The layout of a new run. Tensors without elements have no place.

    held: the boxes of each tensor that ranks hold, by which it is cut into blocks; the same on all
    ranks. run: the tensors are a growth of this one."""
    layout = Layout()
    tensors: Dict[str, List[Tensor]] = {}
    ends: Dict[str, int] = {}  # bytes of a unit so far
    attributes: Dict[str, Dict[str, Any]] = {}
    if held:
        _check_names(kinds)
    arranged = arranging.arrange(kinds)
    cuts = arranging.cuts_of(arranged, held, run)
    for name, kind, whole, found, units, sliced in arranged:
        layout.kinds[name] = kind
        places = layout.places[name] = []
        cut = cuts.get(name)
        if cut is not None:
            layout.cuts[name] = [(cut, len(cut) * number) for number in range(len(units))]
        shapes = [whole] if cut is None else cut.shapes(whole)
        spans = [None] if cut is None else cut.spans()
        sizes = [Tensor(name, kind.dtype, shape).nbytes() for shape in shapes]
        for unit, row in units:
            named = rules.slice_name(name, row) if sliced and row is not None else name
            names = [named] if cut is None else cut.names(named)
            mine = tensors.setdefault(unit, [])
            offset = ends.get(unit, 0)
            for stored, shape, span, size in zip(names, shapes, spans, sizes):
                mine.append(Tensor(stored, kind.dtype, shape, offset))
                places.append(Place(unit, offset, row if sliced else None, span))
                offset += size
            ends[unit] = offset
            if row is not None and found is not None:
                attributes[unit] = {"layer": found.layer, "expert": row, "part": found.part}
    for unit, mine in tensors.items():
        still = all(tensor.dtype not in _FLOATS or _matches(tensor.name, constant)
                    for tensor in mine)
        layout.units.append(Unit(unit, tuple(mine), ends[unit], constant=still,
                                 **attributes.get(unit, {})))
    layout.units.append(Unit(VALUES_UNIT, (Tensor(VALUES_UNIT, "U8", (values_bytes,)),),
                             constant=True).placed())
    return layout


def _matches(name: str, patterns: Sequence[str]) -> bool:
    block = blocks.parse_block_name(name)
    name = block.base if block else name
    sliced = rules.parse_slice_name(name)
    return any(fnmatch.fnmatchcase(sliced[0] if sliced else name, one) for one in patterns)


@paused()
def of_schema(schema: Mapping[str, Any], units: Optional[Collection[str]] = None) -> Layout:
    """The layout of an existing run, from the answer to the query `schema`. units: those whose
    tensors count; the others keep their places in the list."""
    layout = Layout()
    stored: List[_Stored] = []
    for unit in schema["units"]:
        tensors = []
        counts = unit["unit"] != VALUES_UNIT and (units is None or unit["unit"] in units)
        for tensor in unit["tensors"]:
            kind = Kind(tensor["dtype"], tuple(tensor["shape"]))
            name, offset = tensor["name"], tensor["offset"]
            tensors.append(Tensor(name, kind.dtype, kind.shape, offset))
            if counts:
                stored.append(_Stored(name, kind, [Place(unit["unit"], offset)], None))
        layout.units.append(Unit(unit["unit"], tuple(tensors), unit["bytes"], unit["layer"],
                                 unit["expert"], unit["part"] or None,
                                 grown=unit.get("grown", False)))
    slices: Dict[str, Dict[int, _Stored]] = {}
    for one in _with_blocks(stored):
        sliced = rules.parse_slice_name(one.name)
        if product(one.kind.shape) == 0:
            continue
        if sliced:
            slices.setdefault(sliced[0], {})[sliced[1]] = one
        else:
            _put(layout, one.name, one.kind, [one])
    for name, found in slices.items():
        _join(layout, name, found)
    return layout


class _Stored(NamedTuple):
    """A tensor or a slice of a run, whole or in blocks."""

    name: str
    kind: Kind
    places: List[Place]
    cut: Optional[Cut]


def _with_blocks(stored: List[_Stored]) -> List[_Stored]:
    """The same, with the blocks of a tensor as one."""
    joined = blocks.join([(one.name, *one.kind) for one in stored])
    if not joined:
        return stored
    inside = {number for one in joined.values() for number in one.members}
    found = [one for number, one in enumerate(stored) if number not in inside]
    cuts: Dict[Cut, Cut] = {}  # slices mostly have the same
    for name, (cut, shape, members) in joined.items():
        places = [stored[number].places[0]._replace(block=span)
                  for number, span in zip(members, cut.spans())]
        found.append(_Stored(name, Kind(stored[members[0]].kind.dtype, shape), places,
                             cuts.setdefault(cut, cut)))
    return found


def _put(layout: Layout, name: str, kind: Kind, rows: Sequence[_Stored]) -> None:
    """Adds a tensor that is stored whole, or as these slices."""
    layout.kinds[name] = kind
    places = layout.places[name] = []
    cuts = []
    for one in rows:
        cuts.append((one.cut, len(places)))
        places += one.places
    layout.cuts.pop(name, None)  # a tensor of the same name, of another unit
    if any(cut is not None for cut, _ in cuts):
        layout.cuts[name] = cuts


def _join(layout: Layout, name: str, found: Dict[int, _Stored]) -> None:
    """A stacked tensor of its slices, if they are all there and alike; else each on its own."""
    first = found[min(found)].kind
    if sorted(found) == list(range(len(found))) and name not in layout.kinds and all(
            one.kind == first for one in found.values()):
        rows = [one._replace(places=[place._replace(index=index) for place in one.places])
                for index, one in sorted(found.items())]
        _put(layout, name, Kind(first.dtype, (len(found),) + first.shape), rows)
        return
    for index, one in found.items():
        _put(layout, rules.slice_name(name, index), one.kind, [one])


def grow(run: Layout, kinds: Mapping[str, Kind], constant: Sequence[str] = (),
         held: Mapping[str, Sequence[Tuple[Box, Any]]] = {}) -> Layout:
    """The run's layout, and behind it new units for the tensors that it lacks. A unit never
    changes: a tensor of a known unit, an expert's perhaps, gets a unit of its own. held: see
    `of_tensors`."""
    for name, kind in kinds.items():
        if run.kinds.get(name, kind) != kind:
            raise errors.FailedPrecondition(
                f"tensor {name} is {kind}, in the run {run.kinds[name]}; a tensor never changes in "
                "a run, on any lineage: give it another name, or save into a new run")
    more = of_tensors({name: kind for name, kind in kinds.items() if name not in run.kinds}, 1,
                      constant, held, run)
    grown = Layout()
    grown.units, grown.kinds, grown.places = list(run.units), dict(run.kinds), dict(run.places)
    grown.cuts = {**run.cuts, **more.cuts}
    taken = set(run.unit_names())
    names: Dict[str, str] = {}
    for unit in more.units:
        if unit.name == VALUES_UNIT:
            continue
        name, number = unit.name, 2
        while name in taken:
            name, number = f"{unit.name[:UNIT_NAME_MAX]}.{number}", number + 1
        taken.add(name)
        names[unit.name] = name
        grown.units.append(unit._replace(name=name))
    for name, places in more.places.items():
        grown.kinds[name] = more.kinds[name]
        grown.places[name] = [place._replace(unit=names[place.unit]) for place in places]
    return grown


def differences(mine: Layout, run: Layout, grow_by_new: bool = False) -> List[str]:
    """Tensors and units that differ, as sentences: none if `mine` can be saved into the run.

    A state need not have what the run got later. grow_by_new: it may have more than the run."""
    said = []
    grown = {unit.name for unit in run.units if unit.grown}
    for name in sorted(set(mine.kinds) | set(run.kinds)):
        if name not in run.kinds:
            if not grow_by_new:
                said.append(f"tensor {name} is new")
        elif name not in mine.kinds:
            if not all(place.unit in grown for place in run.places[name]):
                said.append(f"tensor {name} is missing")
        elif mine.kinds[name] != run.kinds[name]:
            said.append(f"tensor {name} is {mine.kinds[name]}, in the run {run.kinds[name]}")
    if not said and not grow_by_new and not grown:
        for name in sorted(set(mine.unit_names()) ^ set(run.unit_names())):
            whose = "this state" if name in mine.unit_names() else "the run"
            said.append(f"unit {name} is in {whose} alone")
    return said


def values_bytes(layout: Layout) -> int:
    for unit in layout.units:
        if unit.name == VALUES_UNIT:
            return unit.bytes or 0
    raise errors.NotFound(f"unit {VALUES_UNIT}: the run has none; it was not saved by ckptd.Saver")
