"""Layout: which unit, at which offset, has the bytes of a tensor. Pure; imports no torch.

A new run's layout is made of the tensors' names (see `rules`): one unit per expert, of stacked
tensors one slice per expert, and one unit for each other tensor. An existing run's layout is read
from its schema, so that runs of `ckptctl import` and of other programs can be restored, too."""

import fnmatch
from typing import (Any, Collection, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple)

from . import errors, rules
from ._collector import paused
from .boxes import Box, product
from .units import DTYPE_BITS, Tensor, Unit

VALUES_UNIT = "trainer"  # exports of ckptctl leave this unit out
EXPERTS_MAX = 4096
SLICES_MAX = 1 << 20
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
    """Where a tensor lies, or slice `index` of its first dimension."""

    unit: str
    offset: int
    index: Optional[int]


class Layout:
    """Units in the order of the run, and the places of each tensor."""

    def __init__(self) -> None:
        self.units: List[Unit] = []
        self.kinds: Dict[str, Kind] = {}
        self.places: Dict[str, List[Place]] = {}  # one, or one for each slice in their order

    def unit_names(self) -> List[str]:
        return [unit.name for unit in self.units]

    def parts(self, name: str, box: Box) -> Iterator[Tuple[Place, Tuple[int, ...], Box]]:
        """For each place that a box of the tensor touches: the place, the shape stored there, and
        the box within that shape. A slice's box lacks the first dimension."""
        shape, places = self.kinds[name].shape, self.places[name]
        if places[0].index is None:
            yield places[0], shape, box
            return
        shape, inner = shape[1:], Box(box.offsets[1:], box.sizes[1:])
        for place in places[box.offsets[0]:box.offsets[0] + box.sizes[0]]:
            yield place, shape, inner


@paused()
def of_tensors(kinds: Mapping[str, Kind], values_bytes: int,
               constant: Sequence[str] = ()) -> Layout:
    """The layout of a new run. Tensors without elements have no place."""
    layout = Layout()
    tensors: Dict[str, List[Tensor]] = {}
    ends: Dict[str, int] = {}  # bytes of a unit so far
    attributes: Dict[str, Dict[str, Any]] = {}
    experts = _count_experts(kinds)
    slices = 0
    for name in sorted(kinds):
        kind = kinds[name]
        if product(kind.shape) == 0:
            continue
        layout.kinds[name] = kind
        found = rules.expert_of(name)
        rows = [None] if found is None or found.expert is None else [found.expert]
        if found is not None and found.expert is None and kind.shape and (
                kind.shape[0] == experts.get(found.experts) and kind.shape[0] <= EXPERTS_MAX and
                slices + kind.shape[0] <= SLICES_MAX):
            rows = list(range(kind.shape[0]))
            slices += len(rows)
        sliced = found is not None and found.expert is None and rows != [None]
        shape = kind.shape[1:] if sliced else kind.shape
        size = Tensor(name, kind.dtype, shape).nbytes()
        places = layout.places[name] = []
        for row in rows:
            unit = rules.unit_name_of(name) if row is None or not found else found.unit(row)
            offset = ends.get(unit, 0)
            ends[unit] = offset + size
            named = rules.slice_name(name, row) if sliced and row is not None else name
            tensors.setdefault(unit, []).append(Tensor(named, kind.dtype, shape, offset))
            places.append(Place(unit, offset, row if sliced else None))
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
    sliced = rules.parse_slice_name(name)
    return any(fnmatch.fnmatchcase(sliced[0] if sliced else name, one) for one in patterns)


def _count_experts(kinds: Mapping[str, Kind]) -> Dict[str, int]:
    """Experts of each list, by its stacked weights; 0 if they disagree: then none is split."""
    rows: Dict[str, int] = {}
    for name, kind in kinds.items():
        found = rules.expert_of(name)
        if found is None or not found.counts or not kind.shape:
            continue
        if rows.setdefault(found.experts, kind.shape[0]) != kind.shape[0]:
            rows[found.experts] = 0
    return rows


@paused()
def of_schema(schema: Mapping[str, Any], units: Optional[Collection[str]] = None) -> Layout:
    """The layout of an existing run, from the answer to the query `schema`. units: those whose
    tensors count; the others keep their places in the list."""
    layout = Layout()
    slices: Dict[str, Dict[int, Tuple[Place, Kind]]] = {}
    for unit in schema["units"]:
        tensors = []
        for tensor in unit["tensors"]:
            kind = Kind(tensor["dtype"], tuple(tensor["shape"]))
            name, offset = tensor["name"], tensor["offset"]
            tensors.append(Tensor(name, kind.dtype, kind.shape, offset))
            sliced = rules.parse_slice_name(name)
            if unit["unit"] == VALUES_UNIT or product(kind.shape) == 0 or (
                    units is not None and unit["unit"] not in units):
                continue
            if sliced:
                place = Place(unit["unit"], offset, sliced[1])
                slices.setdefault(sliced[0], {})[sliced[1]] = (place, kind)
            else:
                layout.kinds[name] = kind
                layout.places[name] = [Place(unit["unit"], offset, None)]
        layout.units.append(Unit(unit["unit"], tuple(tensors), unit["bytes"], unit["layer"],
                                 unit["expert"], unit["part"] or None,
                                 grown=unit.get("grown", False)))
    for name, found in slices.items():
        _join(layout, name, found)
    return layout


def _join(layout: Layout, name: str, found: Dict[int, Tuple[Place, Kind]]) -> None:
    """A stacked tensor of its slices, if they are all there and alike; else each on its own."""
    first = found[min(found)][1]
    if sorted(found) == list(range(len(found))) and name not in layout.kinds and all(
            kind == first for _, kind in found.values()):
        layout.kinds[name] = Kind(first.dtype, (len(found),) + first.shape)
        layout.places[name] = [found[index][0] for index in range(len(found))]
        return
    for index, (place, kind) in found.items():
        own = rules.slice_name(name, index)
        layout.kinds[own] = kind
        layout.places[own] = [place._replace(index=None)]


def grow(run: Layout, kinds: Mapping[str, Kind], constant: Sequence[str] = ()) -> Layout:
    """The run's layout, and behind it new units for the tensors that it lacks. A unit never
    changes: a tensor of a known unit, an expert's perhaps, gets a unit of its own."""
    for name, kind in kinds.items():
        if run.kinds.get(name, kind) != kind:
            raise errors.FailedPrecondition(
                f"tensor {name} is {kind}, in the run {run.kinds[name]}; a tensor never changes in "
                "a run, on any lineage: give it another name, or save into a new run")
    more = of_tensors({name: kind for name, kind in kinds.items() if name not in run.kinds}, 1,
                      constant)
    grown = Layout()
    grown.units, grown.kinds, grown.places = list(run.units), dict(run.kinds), dict(run.places)
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
