"""Arranged: the tensors of a new layout with their units, and which of them are cut. Pure."""

import collections
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import blocks, rules
from .blocks import Cut
from .boxes import Box, product, run_count

if TYPE_CHECKING:
    from .layout import Kind, Layout

EXPERTS_MAX = 4096
SLICES_MAX = 1 << 20
# Limits of ckptd; blocks are tensors of their unit.
TENSORS_PER_UNIT_MAX = 4096
TENSOR_NAME_BYTES_MAX = 128 << 10
# Blocks of a layout, or units and tensors of all growth that has blocks: ckptd's limit of growth.
BLOCKS_MAX = 1 << 17
# All descriptions of a run that has blocks: ckptd's limit of growth, below that of a message.
DESCRIPTION_BYTES_MAX = 24 << 20
_TENSOR_BYTES = 80  # of a description, without name and shape


class Arranged(NamedTuple):
    """A tensor of a new layout, before its place in the units is known."""

    name: str
    kind: "Kind"
    shape: Tuple[int, ...]  # of the tensor, or of each slice
    expert: Optional[rules.Expert]
    units: List[Tuple[str, Optional[int]]]  # with the expert, one for each slice
    sliced: bool


def arrange(kinds: Mapping[str, "Kind"]) -> List[Arranged]:
    arranged = []
    experts = _count_experts(kinds)
    slices = 0
    for name in sorted(kinds):
        kind = kinds[name]
        if product(kind.shape) == 0:
            continue
        found = rules.expert_of(name)
        rows = [None] if found is None or found.expert is None else [found.expert]
        if found is not None and found.expert is None and kind.shape and (
                kind.shape[0] == experts.get(found.experts) and kind.shape[0] <= EXPERTS_MAX and
                slices + kind.shape[0] <= SLICES_MAX):
            rows = list(range(kind.shape[0]))
            slices += len(rows)
        sliced = found is not None and found.expert is None and rows != [None]
        units = [(rules.unit_name_of(name) if row is None or not found else found.unit(row), row)
                 for row in rows]
        arranged.append(Arranged(name, kind, kind.shape[1:] if sliced else kind.shape, found,
                                 units, sliced))
    return arranged


def _count_experts(kinds: Mapping[str, "Kind"]) -> Dict[str, int]:
    """Experts of each list, by its stacked weights; 0 if they disagree: then none is split."""
    rows: Dict[str, int] = {}
    for name, kind in kinds.items():
        found = rules.expert_of(name)
        if found is None or not found.counts or not kind.shape:
            continue
        if rows.setdefault(found.experts, kind.shape[0]) != kind.shape[0]:
            rows[found.experts] = 0
    return rows


class _Room:
    """ckptd's limits, as far as tensors that are not cut leave room for blocks. All figures are
    upper bounds, and the same on all ranks."""

    def __init__(self, arranged: Sequence[Arranged], run: Optional["Layout"]) -> None:
        self._blocks, self._bytes = BLOCKS_MAX, DESCRIPTION_BYTES_MAX
        self._tensors = collections.Counter(unit for one in arranged for unit, _ in one.units)
        self._bytes -= sum(_TENSOR_BYTES + len(unit) for unit in self._tensors)
        self._bytes -= sum(len(one.units) * _described(one) for one in arranged)
        if run is not None:
            self._blocks -= len(self._tensors) + sum(self._tensors.values())
            self._blocks -= sum(1 + len(unit.tensors) for unit in run.units if unit.grown)
            self._bytes -= sum(_TENSOR_BYTES + len(unit.name) + sum(
                _TENSOR_BYTES + _length(tensor.name) + 8 * len(tensor.shape)
                for tensor in unit.tensors) for unit in run.units)

    def take(self, one: Arranged, cut: Cut) -> bool:
        """True if the tensor may be cut."""
        count, more = len(cut) * len(one.units), len(cut) - 1
        suffix = 2 * (cut.dim + len(str(cut.bounds[-1]))) + 3
        size = count * (_described(one) + suffix)
        if count > self._blocks or size > self._bytes or (
                _described(one) + suffix > TENSOR_NAME_BYTES_MAX) or any(
                    self._tensors[unit] + more > TENSORS_PER_UNIT_MAX for unit, _ in one.units):
            return False
        self._blocks -= count
        self._bytes -= size
        for unit, _ in one.units:
            self._tensors[unit] += more
        return True


def _length(name: str) -> int:
    return len(name.encode(errors="surrogatepass"))


def _described(one: Arranged) -> int:
    index = len(str(EXPERTS_MAX)) + 2 if one.sliced else 0
    return _TENSOR_BYTES + _length(one.name) + index + 8 * len(one.shape)


def cuts_of(arranged: Sequence[Arranged], held: Mapping[str, Sequence[Tuple[Box, Any]]],
          run: Optional["Layout"]) -> Dict[str, Cut]:
    """The tensors to cut, first those that save the most fragments per block. One whose blocks
    would have the names of other tensors stays whole."""
    taken = blocks.bases([one.name for one in arranged])
    taken |= blocks.bases(run.kinds) if run is not None else set()
    taken |= {sliced[0] for sliced in map(rules.parse_slice_name, taken) if sliced}
    wanted: List[Tuple[int, Arranged, Cut]] = []
    for one in arranged:
        boxes = [box for box, _ in held.get(one.name, ())]
        if one.sliced:
            boxes = list(dict.fromkeys(Box(box.offsets[1:], box.sizes[1:]) for box in boxes))
        cut = blocks.cut_of(one.shape, boxes)
        if cut is not None and one.name not in taken:
            runs = sum(run_count(one.shape, box) for box in boxes)
            wanted.append((runs // len(cut), one, cut))
    if not wanted:
        return {}
    room = _Room(arranged, run)
    wanted.sort(key=lambda item: (-item[0], item[1].name))
    return {one.name: cut for _, one, cut in wanted if room.take(one, cut)}
