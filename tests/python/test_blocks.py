"""Blocks: their names, how they join, and the layouts that have them."""

import contextlib
import itertools
import random
import unittest
from types import SimpleNamespace
from unittest import mock

from support import ckptd
from ckptd import arranging, blocks, boxes, layout
from ckptd.boxes import Box
from ckptd.layout import Kind

STACKED = "layers.0.moe.experts.w1"
NOT_BLOCKS = ("w", "w[3]", "w[0:4]", "w[:,4]", "w[:,4:4]", "w[:,8:4]", "w[:,04:8]", "w[:,0:08]",
              "w[:,0:4] ", "w[:,-1:4]", "w[:,+0:4]", "w[,0:4]", "w[::,0:4]", "w[:,0:\uff14]",
              "w[:,0:4", "w:,0:4]", "w[: ,0:4]", "w[:,:4]", "w[:,0:]", "w[:,0:4:1]", "w[:,0:4]\n",
              "w[:,0:9223372036854775808]", f"w[:,0:{10 ** 300}]", "]", "[]", "[:,]", "")


class Names(unittest.TestCase):
    def test_names_are_parsed_back(self):
        for base in ("w", "a.b[7]", "a[:,0:2]", "\u00e9\u2603 [", "a]b", "x\ny", ""):
            for dim, start, stop in ((1, 0, 1), (2, 10, 12), (63, 0, blocks.NUMBER_MAX)):
                name = blocks.block_name(base, dim, start, stop)
                self.assertEqual(blocks.parse_block_name(name), (base, dim, start, stop), name)

    def test_name_is_the_slice_in_python(self):
        self.assertEqual(blocks.block_name("w", 1, 0, 64), "w[:,0:64]")
        self.assertEqual(blocks.block_name("w[7]", 2, 64, 128), "w[7][:,:,64:128]")

    def test_other_names_are_no_blocks(self):
        for name in NOT_BLOCKS:
            self.assertIsNone(blocks.parse_block_name(name), name)

    def test_long_names_are_parsed(self):
        many = 1 << 16
        for name in ("[" * many + "]", "[" + ":," * many + "]", "[:," * many + "0:1]",
                     "[:," + "0" * many + ":1]", "w[:,0:1]" * many + "]"):
            self.assertIsNone(blocks.parse_block_name(name + ":"))
            found = blocks.parse_block_name(name)
            self.assertTrue(found is None or found.stop == 1)


def tensors(*found):
    """(name, dtype, shape) of names, or of pairs with a shape; dtype F32."""
    out = []
    for one in found:
        name, shape = one if isinstance(one, tuple) else (one, None)
        block = blocks.parse_block_name(name)
        out.append((name, "F32", shape if shape else (3, block.stop - block.start if block else 8)))
    return out


class Joins(unittest.TestCase):
    def test_blocks_of_any_order_join(self):
        found = blocks.join(tensors("w[:,4:7]", "v", "w[:,0:4]", "w[:,7:8]"))
        self.assertEqual(found, {"w": (blocks.Cut(1, (0, 4, 7, 8)), (3, 8), [2, 0, 3])})

    def test_blocks_of_slices_join_to_slices(self):
        found = blocks.join(tensors("w[7][:,0:4]", "w[7][:,4:8]", "w[8][:,0:4]"))
        self.assertEqual({name: one.shape for name, one in found.items()}, {"w[7]": (3, 8)})

    def test_contradictions_leave_blocks_alone(self):
        first, second = "w[:,0:4]", "w[:,4:8]"
        for name, given in {
                "alone": (first,), "gap": (first, "w[:,5:8]"), "overlap": (first, "w[:,3:8]"),
                "no start": ("w[:,1:4]", second), "twice": (first, second, second),
                "contained": (first, second, "w[:,1:2]"), "whole beside": (first, second, "w"),
                "whole is empty": (first, second, ("w", (0,))),
                "other dimension": (first, second, "w[:,:,0:4]"),
                "short": (first, ("w[:,4:8]", (3, 3))), "long": (first, ("w[:,4:8]", (3, 5))),
                "other rows": (first, ("w[:,4:8]", (2, 4))),
                "other rank": (first, ("w[:,4:8]", (3, 4, 1))),
                "no dimension": (("w[:,0:4]", (3,)), ("w[:,4:8]", (3,))),
                "huge": (first, ("w[:,4:9223372036854775807]", (3, 4)))}.items():
            self.assertEqual(blocks.join(tensors(*given)), {}, name)
        given = tensors(first, second)
        self.assertEqual(blocks.join([given[0], (second, "I32", (3, 4))]), {})
        self.assertEqual(list(blocks.join(given + tensors("w[0]", "w[:,8:9]x"))), ["w"])

    def test_huge_extents_join(self):
        size = blocks.NUMBER_MAX
        given = [("w[:,0:1]", "U8", (0, 1)), (f"w[:,1:{size}]", "U8", (0, size - 1))]
        self.assertEqual(blocks.join(given)["w"].shape, (0, size))

    def test_hundred_thousand_tensors_join(self):
        one = [(f"w[:,{at}:{at + 1}]", "F32", (2, 1)) for at in range(50_000)]
        many = [(f"v{at // 2}[:,{at % 2}:{at % 2 + 1}]", "F32", (2, 1)) for at in range(50_000)]
        given = one + many
        random.Random(1).shuffle(given)
        found = blocks.join(given)
        self.assertEqual(len(found), 25_001)
        self.assertEqual((found["w"].shape, found["v7"].shape), ((2, 50_000), (2, 2)))


def schema_of(units):
    return {"units": [{**unit._asdict(), "unit": unit.name, "part": unit.part or "",
                       "tensors": [tensor._asdict() for tensor in unit.tensors]}
                      for unit in units]}


def held(shape, placements, mesh):
    """The boxes of all ranks of a mesh, as planning.Agreed.holders has them."""
    found = {}
    for rank, coordinate in enumerate(itertools.product(*map(range, mesh))):
        dims = boxes.mesh_intervals(shape, placements, mesh, coordinate, "w")
        for box, _ in boxes._boxes(dims):
            found.setdefault(box, []).append(rank)
    return sorted(found.items())


def shard(dim, factor=1):
    return SimpleNamespace(dim=dim, split_factor=factor, is_partial=lambda: False,
                           is_replicate=lambda: False)


def layout_of(name, shape, placements, mesh, dtype="F32", **options):
    return layout.of_tensors({name: Kind(dtype, shape)}, 4096,
                             held={name: held(shape, placements, mesh)}, **options)


def stored(found, name):
    """Names of what is stored of a tensor."""
    return [tensor.name[len(name):] for unit in found.units for tensor in unit.tensors
            if tensor.name.startswith(name)]


class Layouts(unittest.TestCase):
    def test_sharded_columns_are_stored_in_blocks(self):
        found = layout_of("w", (100, 10), [shard(1)], (4,))
        self.assertEqual(stored(found, "w"), ["[:,0:3]", "[:,3:6]", "[:,6:9]", "[:,9:10]"])
        self.assertEqual([tensor.shape for tensor in found.units[0].tensors],
                         [(100, 3), (100, 3), (100, 3), (100, 1)])
        self.assertEqual(found.units[0].bytes, 4000)
        self.assertEqual(found.kinds, {"w": Kind("F32", (100, 10))})

    def test_rows_and_short_tensors_stay_whole(self):
        for shape, placements, mesh in (((100, 10), [shard(0)], (4,)), ((100,), [shard(0)], (4,)),
                                        ((64, 10), [shard(1)], (4,)), ((), [], ()),
                                        ((100, 10), [], ()), ((1, 1000), [shard(1)], (4,))):
            found = layout_of("w", shape, placements, mesh)
            self.assertEqual((stored(found, "w"), found.cuts), ([""], {}), shape)
        self.assertEqual(len(stored(layout_of("w", (65, 10), [shard(1)], (2,)), "w")), 2)

    def test_inner_dimension_decides_for_two_shards(self):
        found = layout_of("w", (200, 6, 4), [shard(0), shard(2)], (2, 2))
        self.assertEqual(stored(found, "w"), ["[:,:,0:2]", "[:,:,2:4]"])
        found = layout_of("w", (200, 6, 4), [shard(1)], (2,))
        self.assertEqual(stored(found, "w"), ["[:,0:3]", "[:,3:6]"])

    def test_strided_shards_are_cut_at_each_interval(self):
        for placements, mesh, parts in (([shard(1, 3)], (2,), 6),
                                        ([shard(1, 2), shard(1)], (2, 2), 4)):
            found = layout_of("w", (70, 12), placements, mesh)
            self.assertEqual(len(stored(found, "w")), parts)
            for box, _ in held((70, 12), placements, mesh):
                (part,) = found.parts("w", box)
                self.assertEqual(boxes.runs(part.shape, part.box), (70 * part.shape[1], [0]))

    def test_slices_of_experts_are_cut(self):
        shape = (4, 70, 6)
        found = layout_of(STACKED, shape, [shard(0), shard(2)], (2, 2), dtype="BF16")
        self.assertEqual(stored(found, STACKED)[:3], ["[0][:,0:3]", "[0][:,3:6]", "[1][:,0:3]"])
        self.assertEqual(len(found.units), 5)
        part = list(found.parts(STACKED, Box((1, 0, 2), (2, 70, 3))))
        self.assertEqual([(one.index, one.place.index, one.place.block, one.within, one.box)
                          for one in part], [
            (0, 1, (1, 0, 3), (1, 0, 1), Box((0, 2), (70, 1))),
            (0, 1, (1, 3, 6), (1, 1, 2), Box((0, 0), (70, 2))),
            (1, 2, (1, 0, 3), (1, 0, 1), Box((0, 2), (70, 1))),
            (1, 2, (1, 3, 6), (1, 1, 2), Box((0, 0), (70, 2)))])

    def test_schema_gives_the_layout_back(self):
        for name in ("w", STACKED, "\u00e9 [3]"):
            found = layout_of(name, (4, 70, 6), [shard(2)], (3,))
            again = layout.of_schema(schema_of(found.units))
            self.assertEqual((again.kinds, again.places, again.cuts),
                             (found.kinds, found.places, found.cuts))
            self.assertEqual(layout.differences(found, again), [])
            whole = layout.of_tensors(found.kinds, 4096)
            self.assertEqual(layout.differences(whole, again), [])

    def test_slices_that_are_cut_apart_join(self):
        names = {"w[0][:,0:4]": (3, 4), "w[0][:,4:8]": (3, 4), "w[1]": (3, 8),
                 "w[2][:,0:1]": (3, 1), "w[2][:,1:8]": (3, 7)}
        unit = ckptd.Unit("u", tuple(ckptd.Tensor(name, "U8", shape)
                                     for name, shape in names.items())).placed()
        found = layout.of_schema(schema_of([unit]))
        self.assertEqual(found.kinds, {"w": Kind("U8", (3, 3, 8))})
        touched = [(part.place.offset, part.shape, part.index, part.within)
                   for part in found.parts("w", Box((0, 1, 2), (3, 1, 3)))]
        self.assertEqual(touched, [(0, (3, 4), 0, (1, 0, 2)), (12, (3, 4), 0, (1, 2, 1)),
                                   (24, (3, 8), 1, boxes.WHOLE), (51, (3, 7), 2, boxes.WHOLE)])
        for place, box in zip(found.places["w"], ((0, 0, 4), (0, 4, 4), (1, 0, 8), (2, 0, 1))):
            row, start, size = box
            self.assertEqual(found.box_of("w", place), Box((row, 0, start), (1, 3, size)))

    def test_blocks_that_join_to_nothing_are_tensors(self):
        names = {"w[:,0:4]": (3, 4), "w[:,5:8]": (3, 3), "v[0][:,0:4]": (3, 4), "v[0]": (3, 4)}
        unit = ckptd.Unit("u", tuple(ckptd.Tensor(name, "U8", shape)
                                     for name, shape in names.items())).placed()
        found = layout.of_schema(schema_of([unit]))
        self.assertEqual(sorted(found.kinds), ["v", "v[0][:,0:4]", "w[:,0:4]", "w[:,5:8]"])

    def test_constant_patterns_match_tensors_of_blocks(self):
        for name in ("w", STACKED):
            for pattern, constant in ((name, True), ("other", False)):
                found = layout_of(name, (2, 70, 6), [shard(2)], (2,), constant=[pattern])
                self.assertEqual([unit.constant for unit in found.units[:-1]],
                                 [constant] * (len(found.units) - 1))

    def test_growth_is_cut_and_the_run_stays(self):
        shape = (100, 4)
        run = layout.of_schema(schema_of(layout_of("w", shape, [shard(1)], (2,)).units))
        kinds = {"w": Kind("F32", shape), "v": Kind("F32", shape)}
        both = {name: held(shape, [shard(1)], (4,)) for name in kinds}
        grown = layout.grow(run, kinds, held=both)
        self.assertEqual([len(stored(grown, name)) for name in ("w", "v")], [2, 4])
        self.assertEqual(grown.unit_names(), ["w", "trainer", "v"])
        self.assertEqual(layout.of_schema(schema_of(grown.units)).cuts, grown.cuts)
        with mock.patch.object(arranging, "BLOCKS_MAX", 6):  # v as it is has 2
            self.assertEqual(len(stored(layout.grow(run, kinds, held=both), "v")), 4)
        with mock.patch.object(arranging, "BLOCKS_MAX", 5):
            self.assertEqual(len(stored(layout.grow(run, kinds, held=both), "v")), 1)

    def test_room_goes_where_it_saves_most(self):
        kinds = {"a": Kind("F32", (65, 4)), "z": Kind("F32", (7168, 4))}
        both = {name: held(kind.shape, [shard(1)], (4,)) for name, kind in kinds.items()}
        with mock.patch.object(arranging, "BLOCKS_MAX", 4):
            found = layout.of_tensors(kinds, 4096, held=both)
        self.assertEqual(list(found.cuts), ["z"])

    def test_blocks_with_names_of_tensors_are_not_made(self):
        shape = (100, 4)
        kinds = {"w": Kind("F32", shape), "w[:,0:2]": Kind("F32", (1,)),
                 "v": Kind("F32", shape)}
        found = layout.of_tensors(kinds, 4096, held={
            name: held(shape, [shard(1)], (2,)) for name in "wv"})
        self.assertEqual(list(found.cuts), ["v"])


class Limits(unittest.TestCase):
    """Tensors that are not cut, because ckptd would refuse so many."""

    def cut(self, *more, **patched):
        """Tensors that are cut, of w (4 blocks), v (2), 4 slices (2 each), and more slices."""
        shapes = {"v": ((70, 8), [shard(1)], (2,)), "w": ((70, 8), [shard(1)], (4,))}
        shapes.update((name, ((4, 70, 8), [shard(2)], (2,))) for name in (STACKED, *more))
        kinds = {name: Kind("U8", shape) for name, (shape, _, _) in shapes.items()}
        with contextlib.ExitStack() as stack:
            for name, value in patched.items():
                where = blocks if hasattr(blocks, name) else arranging
                stack.enter_context(mock.patch.object(where, name, value))
            return list(layout.of_tensors(kinds, 4096, held={
                name: held(*one) for name, one in shapes.items()}).cuts)

    def test_too_many_blocks_of_one_tensor(self):
        self.assertEqual(self.cut(), [STACKED, "v", "w"])
        self.assertEqual(self.cut(BLOCKS_PER_TENSOR_MAX=4), [STACKED, "v", "w"])
        self.assertEqual(self.cut(BLOCKS_PER_TENSOR_MAX=3), [STACKED, "v"])

    def test_too_many_blocks_of_a_layout(self):
        self.assertEqual(self.cut(BLOCKS_MAX=14), [STACKED, "v", "w"])
        self.assertEqual(self.cut(BLOCKS_MAX=13), [STACKED, "v"])
        self.assertEqual(self.cut(BLOCKS_MAX=7), ["v", "w"])

    def test_too_many_tensors_of_a_unit(self):
        self.assertEqual(self.cut(TENSORS_PER_UNIT_MAX=2), [STACKED, "v"])
        self.assertEqual(self.cut(TENSORS_PER_UNIT_MAX=1), [])
        other = STACKED[:-1] + "2"
        self.assertEqual(self.cut(other, TENSORS_PER_UNIT_MAX=4), [STACKED, other, "v", "w"])
        self.assertEqual(self.cut(other, TENSORS_PER_UNIT_MAX=3), [STACKED, "v"])

    def test_too_long_names(self):
        self.assertEqual(self.cut("u" * 2000, TENSOR_NAME_BYTES_MAX=1000), [STACKED, "v", "w"])

    def test_too_long_descriptions(self):
        """More bytes of descriptions let more tensors be cut, in the order of names."""
        found = [self.cut(DESCRIPTION_BYTES_MAX=size) for size in range(1000, 4000, 50)]
        self.assertEqual([one for one, before in zip(found, [None] + found) if one != before],
                         [[], ["v"], ["v", "w"], [STACKED], [STACKED, "v"],
                          [STACKED, "v", "w"]])


if __name__ == "__main__":
    unittest.main()
