"""Plans over layouts with blocks: every element is written once, and read where it belongs."""

import random
import unittest
from unittest import mock

from support import ckptd
from test_blocks import held, schema_of, shard
from ckptd import blocks, boxes, layout, planning
from ckptd.boxes import Box
from ckptd.layout import Kind


def partition(chance, box, parts):
    """Cuts a box at random into so many boxes, or fewer."""
    found = [box]
    for _ in range(parts - 1):
        at = chance.randrange(len(found))
        dims = [dim for dim, size in enumerate(found[at].sizes) if size > 1]
        if dims:
            one, dim = found.pop(at), chance.choice(dims)
            size = chance.randrange(1, one.sizes[dim])
            found += [boxes.part_of(one, dim, 0, size),
                      boxes.part_of(one, dim, size, one.sizes[dim] - size)]
    return found


def random_box(chance, shape):
    offsets = [chance.randrange(size) for size in shape]
    return Box(tuple(offsets), tuple(chance.randint(1, size - offset)
                                     for size, offset in zip(shape, offsets)))


def declared(chance, ranks):
    """Random declarations: tensors cut at random, each box on one rank or on several."""
    out = [planning.Declared(rank, {}, {}, {}, (), {}) for rank in range(ranks)]
    for number in range(chance.randint(1, 3)):
        shape = tuple(chance.randint(1, 9) for _ in range(chance.randint(0, 4)))
        name = f"layers.{number}.moe.experts.w1" if chance.random() < 0.5 else f"w{number}"
        kind = Kind(chance.choice(("U8", "F32", "BF16")), shape)
        mine = [[] for _ in range(ranks)]
        for box in partition(chance, boxes.whole(shape), chance.randint(1, 6)):
            for rank in chance.sample(range(ranks), chance.choice((1, 1, ranks))):
                mine[rank].append(box)
        for rank, found in enumerate(mine):
            if found:
                out[rank].tensors[name] = planning.Held(kind, tuple(found), False)
    return out


def elements_of(shape, box):
    """Row-major numbers of a box's elements in the tensor."""
    length, starts = boxes.runs(shape, box)
    return [start + at for start in starts for at in range(length)]


def part_within(box, index, within):
    """The box that is a part of a box: see boxes.part_of_data."""
    if index is not None:
        box = boxes.part_of(box, 0, index, 1)
    dim, start, size = within
    if dim < 0:
        return box
    return boxes.part_of(box, dim + (index is not None), start, size)


class Store:
    """Elements of units, by (unit, byte where the element begins): (tensor, element)."""

    def __init__(self, found):
        self.layout = found
        self.elements = {}

    def write(self, plan, mine):
        """All writes of a rank; each element once. Returns the bytes of each of its fragments."""
        written = []
        for unit, writes in plan.writes.items():
            for one in writes:
                kind = mine[one.name].kind
                item = kind.item_bytes()
                box = boxes.part_of(mine[one.name].boxes[one.piece], *one.cut)
                source = iter(elements_of(kind.shape, part_within(box, one.index, one.within)))
                for start in one.starts:
                    written.append((unit, one.offset + start * item, one.length * item))
                    for at in range(start, start + one.length):
                        key = unit, one.offset + at * item
                        assert key not in self.elements, "written twice"
                        self.elements[key] = one.name, next(source)
                assert next(source, None) is None, "a write has fewer elements than its box"
        return sorted(written)

    def read(self, name, box):
        """The elements of a box, by their place in it."""
        kind, numbers = self.layout.kinds[name], {}
        units = {unit.name: number for number, unit in enumerate(self.layout.units)}
        item = kind.item_bytes()
        for part in self.layout.parts(name, box):
            target = elements_of(kind.shape, part_within(box, part.index, part.within))
            source = elements_of(part.shape, part.box)
            assert len(target) == len(source)
            for into, at in zip(target, source):
                assert into not in numbers, "read twice"
                numbers[into] = self.elements[
                    units[part.place.unit], part.place.offset + at * item]
        return numbers


class Plans(unittest.TestCase):
    def check_plans(self, chance, given, found):
        """Fragments of all ranks cover each unit once, and are what the ranks write."""
        agreed, store = planning.merge(given), Store(found)
        plans = [planning.Plan(agreed, found, one.rank, one.tensors, 4096 * len(given))
                 for one in given]
        every = range(len(found.units))
        fragments = [(one.rank, one.unit, one.offset, one.length)
                     for one in plans[0].fragments(every)]
        for plan, one in zip(plans, given):
            self.assertEqual(bytes(plan.fragments(every)), bytes(plans[0].fragments(every)))
            written = store.write(plan, one.tensors)
            values = len(found.units) - 1
            self.assertEqual(written, sorted(part[1:] for part in fragments
                                             if part[0] == one.rank and part[1] != values))
        for number, unit in enumerate(found.units):
            end = 0
            for _, offset, length in sorted(part[1:] for part in fragments if part[1] == number):
                self.assertEqual(offset, end)
                end += length
            self.assertEqual(end, unit.bytes)
        for name, kind in found.kinds.items():
            for box in [boxes.whole(kind.shape)] + [random_box(chance, kind.shape)
                                                    for _ in range(4)]:
                self.assertEqual(store.read(name, box), {
                    at: (name, at) for at in elements_of(kind.shape, box)})

    def rounds(self, seed, rows_min):
        """Random runs; half of them were registered by other ranks with another sharding."""
        cut = 0
        with mock.patch.object(blocks, "BLOCK_ROWS_MIN", rows_min):
            for turn in range(200):
                chance = random.Random(f"{seed} {turn}")
                given = declared(chance, chance.randint(1, 4))
                agreed = planning.merge(given)
                others = agreed.holders if turn % 2 else {
                    name: [(box, [0]) for box in partition(chance, boxes.whole(kind.shape), 5)]
                    for name, kind in agreed.kinds.items()}
                found = layout.of_tensors(agreed.kinds, 4096 * len(given), held=others)
                again = layout.of_schema(schema_of(found.units))
                with self.subTest(seed=seed, turn=turn):
                    self.assertEqual((again.places, again.cuts), (found.places, found.cuts))
                    self.check_plans(chance, given, again)
                cut += bool(found.cuts)
        return cut

    def test_each_element_is_written_and_read_once(self):
        with mock.patch.object(planning, "SPLIT_BYTES_MIN", 16):
            self.assertGreater(self.rounds(1, 1), 80)
            self.assertGreater(self.rounds(2, blocks.BLOCK_ROWS_MIN), 10)

    def test_fragments_of_a_cut_tensor_are_few(self):
        shape = (4096, 64)
        given = [planning.Declared(rank, {"w": planning.Held(Kind("F32", shape), (box,), False)},
                                   {}, {}, (), {})
                 for box, (rank,) in held(shape, [shard(1)], (4,))]
        agreed = planning.merge(given)
        for holders, count in ((agreed.holders, 4), ({}, 4 * 4096)):
            found = layout.of_tensors(agreed.kinds, 1 << 16, held=holders)
            plan = planning.Plan(agreed, found, 0, given[0].tensors, 1 << 16)
            self.assertEqual(len(plan.fragments(range(len(found.units)))), count + 4)

    def test_too_many_fragments_say_the_remedy(self):
        shape = (100, 4)
        given = [planning.Declared(rank, {"w": planning.Held(Kind("F32", shape), (box,), False)},
                                   {}, {}, (), {})
                 for box, (rank,) in held(shape, [shard(1)], (2,))]
        agreed = planning.merge(given)
        found = layout.of_tensors(agreed.kinds, 1 << 13)
        with mock.patch.object(planning, "FRAGMENTS_MAX", 150), self.assertRaisesRegex(
                ckptd.InvalidArgument, "tensor w: it is cut into 100 rows, and all tensors into "
                "200, above 150; .*along one later dimension as the run's first save did"):
            planning.Plan(agreed, found, 0, given[0].tensors, 1 << 13)


if __name__ == "__main__":
    unittest.main()
