"""Blocks: parts of a tensor along a later dimension, each stored as a tensor. Pure; no torch.

A rank with a shard of a later dimension has one short run of a row-major tensor per row. In blocks
along that dimension its shard is one run. A block has the name of its slice in Python,
`w[:,0:64]`, so that programs that know no blocks read tensors of honest names."""

import bisect
import re
from typing import Collection, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from .boxes import WHOLE, Box, run_count, run_dim

BLOCK_ROWS_MIN = 64  # a tensor is cut if one held box has more runs
BLOCKS_PER_TENSOR_MAX = 256
NUMBER_MAX = (1 << 63) - 1
_SUFFIX = re.compile(r"\[((?::,)+)(0|[1-9][0-9]{0,18}):([1-9][0-9]{0,18})\]")
Shape = Tuple[int, ...]


class Block(NamedTuple):
    """Elements [start, stop) of a dimension of tensor `base`, from the name of the block."""

    base: str
    dim: int
    start: int
    stop: int


class Part(NamedTuple):
    """The part of a box that lies in one block."""

    number: int  # of the block
    shape: Shape  # of the block
    box: Box  # within that shape
    within: Tuple[int, int, int]  # part of the asked box: dimension, start, size; or WHOLE


class Cut(NamedTuple):
    """The blocks of a tensor: bounds along a dimension, ascending from 0 to its extent."""

    dim: int
    bounds: Tuple[int, ...]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def shapes(self, shape: Shape) -> List[Shape]:
        return [_replaced(shape, self.dim, stop - start)
                for start, stop in zip(self.bounds, self.bounds[1:])]

    def spans(self) -> List[Tuple[int, int, int]]:
        """(dimension, start, stop) of each block."""
        return [(self.dim, *span) for span in zip(self.bounds, self.bounds[1:])]

    def names(self, base: str) -> List[str]:
        return [block_name(base, *span) for span in self.spans()]

    def parts(self, shape: Shape, box: Box) -> Iterator[Part]:
        """The parts of a box of the tensor that lie in each block that it touches."""
        dim, low = self.dim, box.offsets[self.dim]
        high = low + box.sizes[dim]
        for number in range(bisect.bisect_right(self.bounds, low) - 1,
                            bisect.bisect_left(self.bounds, high)):
            start, stop = self.bounds[number:number + 2]
            begin, end = max(start, low), min(stop, high)
            yield Part(number, _replaced(shape, dim, stop - start),
                       Box(_replaced(box.offsets, dim, begin - start),
                           _replaced(box.sizes, dim, end - begin)),
                       WHOLE if end - begin == high - low else (dim, begin - low, end - begin))


def _replaced(numbers: Shape, at: int, number: int) -> Shape:
    return numbers[:at] + (number,) + numbers[at + 1:]


def cut_of(shape: Shape, held: Collection[Box]) -> Optional[Cut]:
    """How to cut a tensor so that the boxes that ranks hold have few runs; None: it stays whole."""
    if all(box.sizes[1:] == shape[1:] for box in held):
        return None  # each is one run: the common case, and a quick answer
    worst = max(held, key=lambda box: run_count(shape, box))
    dim = run_dim(shape, worst)
    if dim < 1 or run_count(shape, worst) <= BLOCK_ROWS_MIN:
        return None
    bounds = {0, shape[dim]}
    for box in held:
        bounds |= {box.offsets[dim], box.offsets[dim] + box.sizes[dim]}
    if not 2 < len(bounds) <= BLOCKS_PER_TENSOR_MAX + 1:
        return None
    return Cut(dim, tuple(sorted(bounds)))


def block_name(base: str, dim: int, start: int, stop: int) -> str:
    return f"{base}[{':,' * dim}{start}:{stop}]"


def parse_block_name(name: str) -> Optional[Block]:
    """None: it is no name of a block. In linear time, whatever the name."""
    if not name.endswith("]"):
        return None
    at = name.rfind("[")
    found = _SUFFIX.fullmatch(name, at) if at >= 0 else None
    if found is None:
        return None
    start, stop = int(found.group(2)), int(found.group(3))
    if not start < stop <= NUMBER_MAX:
        return None
    return Block(name[:at], len(found.group(1)) // 2, start, stop)


class Joined(NamedTuple):
    """A tensor of blocks, in their order: numbers of the tensors that were given."""

    cut: Cut
    shape: Shape
    members: List[int]


def join(tensors: Sequence[Tuple[str, str, Shape]]) -> Dict[str, Joined]:
    """Tensors made of blocks, by their names. Given: (name, dtype, shape) of all that is stored.

    Names come from any client. Blocks with a gap, an overlap or a contradiction stay tensors of
    their own: they are in no answer."""
    found: Dict[str, List[Tuple[Block, int]]] = {}
    for number, (name, _, _) in enumerate(tensors):
        block = parse_block_name(name)
        if block is not None:
            found.setdefault(block.base, []).append((block, number))
    if not found:
        return {}
    names = {name for name, _, _ in tensors}
    joined = {}
    for base, blocks in found.items():
        one = _join(sorted(blocks, key=lambda item: item[0][2:]), tensors)
        if one is not None and base not in names:
            joined[base] = one
    return joined


def _join(blocks: List[Tuple[Block, int]],
          tensors: Sequence[Tuple[str, str, Shape]]) -> Optional[Joined]:
    (first, number), end = blocks[0], 0
    _, dtype, shape = tensors[number]
    if len(blocks) < 2 or len(shape) <= first.dim:
        return None
    for block, number in blocks:
        _, kind, mine = tensors[number]
        if (block.dim, block.start, kind) != (first.dim, end, dtype) or (
                mine != _replaced(shape, first.dim, block.stop - block.start)):
            return None
        end = block.stop
    bounds = (0, *(block.stop for block, _ in blocks))
    return Joined(Cut(first.dim, bounds), _replaced(shape, first.dim, end),
                  [number for _, number in blocks])


def bases(names: Collection[str]) -> Set[str]:
    """Tensors that blocks with these names would be of."""
    found = (parse_block_name(name) for name in names)
    return {block.base for block in found if block is not None}
