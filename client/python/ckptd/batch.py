"""Batch: a rank's writes of contiguous host memory, as an array for one call of libckpt.

Between two saves only the addresses of tensors change, and seldom. The array is made once."""

import array
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from . import transfer
from .boxes import WHOLE, Box, Piece
from .planning import Held, Write
from .snapshot import Snapshot
from .state import data_of

RUNS_MAX = 64  # of one write; rows of a shard of a later dimension are made anew at each save
PIECES_MAX = 1 << 16  # in the array: 48 bytes each, with the place of its address
_ADDRESS = 3  # word of a ckpt_piece


def first_element(box: Box, cut: Tuple[int, int, int], index: Any) -> int:
    """The element of a contiguous box where a planned write of its whole width begins: see
    `state.data_of`."""
    strides = [1] * len(box.sizes)
    for dim in range(len(strides) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * box.sizes[dim + 1]
    dim, start, size = cut
    first = start * strides[dim] if dim >= 0 and box.sizes[dim] != size else 0
    return first + (0 if index is None else index * strides[0])


class _Source:
    """One box of one tensor, and the words of the array that depend on its address."""

    __slots__ = ("name", "piece", "address", "words", "offsets")

    def __init__(self, name: str, piece: int) -> None:
        self.name = name
        self.piece = piece
        self.address = 0  # in the array; 0: the memory is not contiguous memory of the host
        self.words = array.array("Q")  # of the array's words, those with its addresses
        self.offsets = array.array("Q")  # of these addresses, from that of the box


class Batch:
    """Writes of this rank, by unit. Memory of a GPU, tensors without contiguous memory, boxes wider
    than a block and many short rows are not in the array, and are written one by one."""

    def __init__(self, writes: Mapping[int, Sequence[Write]], held: Mapping[str, Held]) -> None:
        self._writes = writes
        self._held = held
        self._sources: Dict[Tuple[str, int], _Source] = {}
        self._words = array.array("Q")
        self._spans: Dict[int, Tuple[int, int]] = {}  # words of a unit
        self._rest: Dict[int, List[Write]] = {}
        for mine in writes.values():
            for one in mine:
                self._sources[one.name, one.piece] = _Source(one.name, one.piece)

    def names(self) -> List[str]:
        """Tensors that this rank writes."""
        return list(dict.fromkeys(name for name, _ in self._sources))

    def write(self, snapshot: Snapshot, buffer: transfer.Buffer, units: Sequence[int],
              pieces: Mapping[str, Sequence[Piece]]) -> None:
        """Writes this rank's part of the units. The pieces may be changed afterwards."""
        self._locate(pieces)
        with transfer.Writer(snapshot, buffer) as writer:
            for one in self._others(units):
                data = data_of(pieces[one.name], one)
                writer.write(one.unit, data, one.length, one.starts, one.offset)
            snapshot.write_pieces(self._array(units))

    def _locate(self, pieces: Mapping[str, Sequence[Piece]]) -> None:
        moved: List[_Source] = []
        spans, self._spans = self._spans, {}  # after an exception, the array is made anew
        other = not spans
        for source in self._sources.values():
            address = transfer.host_address(pieces[source.name][source.piece].data)
            if address != source.address:
                other = other or not address or not source.address
                source.address = address
                moved.append(source)
        if other:
            self._make()
            return
        for source in moved:
            for word, offset in zip(source.words, source.offsets):
                self._words[word] = source.address + offset
        self._spans = spans

    def _make(self) -> None:
        self._words, self._rest = array.array("Q"), {}
        spans: Dict[int, Tuple[int, int]] = {}
        for source in self._sources.values():
            source.words, source.offsets = array.array("Q"), array.array("Q")
        for unit, mine in sorted(self._writes.items()):
            begin = len(self._words)
            for one in mine:
                source = self._sources[one.name, one.piece]
                room = PIECES_MAX - len(self._words) // transfer.PIECE_WORDS
                if not source.address or one.within != WHOLE or (
                        len(one.starts) > min(RUNS_MAX, room)):
                    self._rest.setdefault(unit, []).append(one)
                else:
                    self._add(one, source)
            spans[unit] = begin, len(self._words)
        self._spans = spans

    def _add(self, one: Write, source: _Source) -> None:
        held = self._held[one.name]
        item = held.kind.item_bytes()
        length = one.length * item
        at = first_element(held.boxes[one.piece], one.cut, one.index) * item
        for start in one.starts:
            source.words.append(len(self._words) + _ADDRESS)
            source.offsets.append(at)
            self._words.extend((one.unit, one.offset + start * item, length, source.address + at))
            at += length

    def _array(self, units: Sequence[int]) -> Any:
        if len(units) >= len(self._spans) and set(self._spans) <= set(units):
            return transfer.as_pieces(self._words)
        words = array.array("Q")
        for unit in units:
            begin, end = self._spans.get(unit, (0, 0))
            words += self._words[begin:end]
        return transfer.as_pieces(words)

    def _others(self, units: Iterable[int]) -> Iterator[Write]:
        """Writes of these units that are not in the array."""
        if self._rest:
            for unit in units:
                yield from self._rest.get(unit, ())
