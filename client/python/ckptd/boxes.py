"""Boxes: which part of a full tensor the memory of one rank holds. Pure; imports no torch.

A `Piece` is a box and the local tensor with exactly the elements of the box. `pieces_of` finds the
pieces of plain tensors, DTensors, ShardedTensors and tensors with the CheckpointableTensor
attributes. `runs` turns a box into contiguous runs of the full tensor in row-major order."""

import itertools
import operator
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import errors

Shape = Tuple[int, ...]
Interval = Tuple[int, int]  # [start, stop)
WHOLE = (-1, 0, 1)  # part of a box, as (dimension, start, size): all of it


class Box(NamedTuple):
    """A part of a full tensor, in elements. Offsets and sizes have one entry per dimension."""

    offsets: Shape
    sizes: Shape

    def elements(self) -> int:
        return product(self.sizes)


class Piece(NamedTuple):
    """A box, and a local tensor of exactly its sizes, maybe a view without contiguous memory."""

    box: Box
    data: Any


class Found(NamedTuple):
    """The part of a tensor that a rank holds. `plain`: all of it, outside any mesh."""

    shape: Shape
    pieces: List[Piece]
    plain: bool


def product(sizes: Sequence[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def whole(shape: Sequence[int]) -> Box:
    return Box((0,) * len(shape), tuple(shape))


def chunk(size: int, count: int, index: int) -> Interval:
    """Chunk `index` of `count`, cut like torch.chunk: the last chunks may be smaller, or empty."""
    step = -(-size // count)
    start = min(step * index, size)
    return start, min(start + step, size)


def cut(intervals: Sequence[Interval], start: int, stop: int) -> List[Interval]:
    """Elements [start, stop) of a sequence of intervals. Adjacent results are merged."""
    out: List[Interval] = []
    at = 0
    for begin, end in intervals:
        low, high = max(start, at), min(stop, at + end - begin)
        if low < high:
            first, last = begin + low - at, begin + high - at
            if out and out[-1][1] == first:
                out[-1] = (out[-1][0], last)
            else:
                out.append((first, last))
        at += end - begin
    return out


def sharded(intervals: Sequence[Interval], count: int, index: int,
            split_factor: int = 1) -> List[Interval]:
    """Shard `index` of `count`. With a split factor the dimension is first cut into so many chunks,
    and each rank gets one part of every chunk: torch's _StridedShard."""
    total = sum(stop - start for start, stop in intervals)
    out: List[Interval] = []
    for turn in range(split_factor):
        start, stop = chunk(total, split_factor, turn)
        low, high = chunk(stop - start, count, index)
        out += cut(intervals, start + low, start + high)
    merged: List[Interval] = []
    for start, stop in out:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return merged


def mesh_intervals(shape: Sequence[int], placements: Sequence[Any], mesh: Sequence[int],
                   coordinate: Sequence[int], name: str) -> List[List[Interval]]:
    """Intervals of each dimension that a coordinate of a mesh holds, in the order of its memory."""
    dims: List[List[Interval]] = [[(0, size)] if size else [] for size in shape]
    for placement, count, index in zip(placements, mesh, coordinate):
        if placement.is_partial():
            raise errors.InvalidArgument(
                f"{name}: placement {placement} is a partial sum, not the tensor's values; "
                "redistribute it to Replicate or Shard first")
        if placement.is_replicate():
            continue
        factor = getattr(placement, "split_factor", 1)
        if not hasattr(placement, "dim"):
            raise errors.InvalidArgument(
                f"{name}: placement {placement} is unknown; redistribute it to Shard or Replicate")
        dim = placement.dim % len(shape)
        dims[dim] = sharded(dims[dim], count, index, factor)
    return dims


def _boxes(dims: Sequence[Sequence[Interval]]) -> List[Tuple[Box, Shape]]:
    """All boxes of intervals per dimension, each with its offsets in the local tensor."""
    placed = []
    for intervals in dims:
        at = 0
        row = []
        for start, stop in intervals:
            row.append((start, stop - start, at))
            at += stop - start
        placed.append(row)
    out = []
    for combination in itertools.product(*placed):
        out.append((Box(tuple(part[0] for part in combination),
                        tuple(part[1] for part in combination)),
                    tuple(part[2] for part in combination)))
    return out


def narrow(data: Any, offsets: Sequence[int], sizes: Sequence[int]) -> Any:
    """The view of a tensor at a box."""
    for dim, (offset, size) in enumerate(zip(offsets, sizes)):
        if offset != 0 or size != data.shape[dim]:
            data = data.narrow(dim, offset, size)
    return data


def _of_dtensor(tensor: Any, name: str) -> Found:
    shape = tuple(tensor.shape)
    local = tensor._local_tensor
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    dims = mesh_intervals(shape, tensor.placements, tuple(mesh.shape),
                          coordinate or (0,) * len(mesh.shape), name)
    if coordinate is None:  # this rank is not in the mesh
        return Found(shape, [], False)
    expected = tuple(sum(stop - start for start, stop in intervals) for intervals in dims)
    if product(expected) == 0:
        return Found(shape, [], False)
    if tuple(local.shape) != expected:
        raise errors.InvalidArgument(
            f"{name}: its local part has shape {tuple(local.shape)}, and {tensor.placements} of "
            f"shape {shape} gives {expected}; pad or redistribute it")
    return Found(shape, [Piece(box, narrow(local, at, box.sizes)) for box, at in _boxes(dims)],
                 False)


def _of_sharded_tensor(tensor: Any) -> Found:
    pieces = [Piece(Box(tuple(shard.metadata.shard_offsets), tuple(shard.metadata.shard_sizes)),
                    shard.tensor) for shard in tensor.local_shards()]
    return Found(tuple(tensor.metadata().size), pieces, False)


def _of_checkpointable(tensor: Any) -> Found:
    pieces = [Piece(Box(tuple(offsets), tuple(sizes)), narrow(tensor, at, sizes))
              for offsets, at, sizes in zip(tensor.global_offsets, tensor.local_offsets,
                                            tensor.local_sizes)]
    return Found(tuple(tensor.global_shape), pieces, False)


def pieces_of(tensor: Any, name: str) -> Found:
    """The pieces that this rank holds of a tensor; `name` says in errors which tensor it is."""
    if hasattr(tensor, "placements") and hasattr(tensor, "device_mesh"):
        return _of_dtensor(tensor, name)
    if hasattr(tensor, "local_shards") and hasattr(tensor, "metadata"):
        return _of_sharded_tensor(tensor)
    if hasattr(tensor, "global_offsets") and hasattr(tensor, "local_sizes"):
        return _of_checkpointable(tensor)
    return Found(tuple(tensor.shape), [Piece(whole(tensor.shape), tensor)], True)


def run_dim(shape: Sequence[int], box: Box) -> int:
    """The outermost dimension that lies within one run."""
    dim = len(shape)
    while dim > 0 and box.sizes[dim - 1] == shape[dim - 1]:
        dim -= 1
    return max(dim - 1, 0)


def run_count(shape: Sequence[int], box: Box) -> int:
    return product(box.sizes[:run_dim(shape, box)]) if box.elements() else 0


def runs(shape: Sequence[int], box: Box) -> Tuple[int, List[int]]:
    """(elements of a run, first element of each run in the full tensor), ascending. Run i holds
    elements [i * length, (i + 1) * length) of the box in row-major order."""
    if box.elements() == 0:
        return 0, []
    dim = run_dim(shape, box)
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * shape[at + 1]
    starts = [sum(offset * stride for offset, stride in zip(box.offsets, strides))]
    for at in range(dim):
        starts = [start + step * strides[at] for start in starts for step in range(box.sizes[at])]
    return product(box.sizes[dim:]), starts


def run_boxes(shape: Sequence[int], box: Box) -> Iterator[Box]:
    """The runs of a box as boxes, in row-major order."""
    dim = run_dim(shape, box)
    for before in itertools.product(*(range(size) for size in box.sizes[:dim])):
        yield Box((*map(operator.add, box.offsets, before), *box.offsets[dim:]),
                  ((1,) * dim + box.sizes[dim:]))


def split(box: Box, parts: int) -> List[Tuple[int, int, int]]:
    """Cuts a box along its first dimension of more than one element: (dimension, start, size)."""
    for dim, size in enumerate(box.sizes):
        if size > 1:
            cuts = [chunk(size, parts, index) for index in range(parts)]
            return [(dim, start, stop - start) for start, stop in cuts if start < stop]
    return [(0, 0, 1)] if box.sizes else [WHOLE]


def part_of(box: Box, dim: int, start: int, size: int) -> Box:
    """The part of a box that `split` describes."""
    if dim < 0:
        return box
    offsets, sizes = list(box.offsets), list(box.sizes)
    offsets[dim] += start
    sizes[dim] = size
    return Box(tuple(offsets), tuple(sizes))


def part_of_data(data: Any, index: Optional[int], within: Tuple[int, int, int]) -> Any:
    """The memory of a part of a box: of a row of its first dimension, and then of a part of that.
    None and WHOLE leave out these steps."""
    if index is not None:
        data = data.select(0, index)
    return data if within == WHOLE else data.narrow(*within)


def bands(shape: Sequence[int], item_bytes: int, room: int) -> Iterator[Box]:
    """Boxes that cover a tensor in row-major order, each one run of at most `room` bytes."""
    dim = 0
    while dim < len(shape) and product(shape[dim:]) * item_bytes > room:
        dim += 1
    if dim == 0:
        yield whole(shape)
        return
    dim -= 1
    rest = tuple(shape[dim + 1:])
    step = max(room // (product(rest) * item_bytes), 1)
    for before in itertools.product(*(range(size) for size in shape[:dim])):
        for start in range(0, shape[dim], step):
            yield Box((*before, start, *(0 for _ in rest)),
                      (*(1 for _ in before), min(step, shape[dim] - start), *rest))
