"""Copies of tensors into blocks and out of them, through the code of saves and restores."""

import ctypes
import random
import unittest
from unittest import mock

import pytorch_support  # noqa: F401
from pytorch_support import ckptd, filled, same, torch
from test_batch import Taken

from ckptd import batch, blocks, boxes, layout, planning, transfer
from ckptd.boxes import Box, Piece
from test_block_plans import partition, random_box


class Stored:
    """A view that is read from the bytes of a Taken snapshot."""

    run = None

    def __init__(self, taken, found):
        self.bytes = taken.bytes
        self.session = self
        self.numbers = {unit.name: number for number, unit in enumerate(found.units)}
        self.ranges = 0

    def unit(self, name, run):
        return self.numbers[name], 0

    def read_words(self, words, names, timeout):
        self.ranges += len(names)
        for at in range(0, len(words), 4):
            unit, offset, size, address = words[at:at + 4]
            found = bytes(self.bytes[unit, offset + byte] for byte in range(size))
            ctypes.memmove(address, found, size)
        return []


class Job:
    """Ranks that hold random parts of tensors, in memory that is contiguous or not."""

    def __init__(self, chance, seed):
        self.size = chance.randint(1, 3)
        self.chance = chance
        self.full = {}
        self.pieces = [{} for _ in range(self.size)]
        declared = [planning.Declared(rank, {}, {}, {}, (), {}) for rank in range(self.size)]
        for number in range(chance.randint(1, 3)):
            shape = [chance.randint(1, 7) for _ in range(chance.randint(1, 3))]
            name = f"layers.{number}.moe.experts.w1" if len(shape) == 3 else f"w{number}"
            full = self.full[name] = filled(shape, seed * 10 + number, chance.choice(
                (torch.float32, torch.bfloat16, torch.uint8)))
            for box in partition(chance, boxes.whole(shape), chance.randint(1, 6)):
                for rank in chance.sample(range(self.size), chance.choice((1, self.size))):
                    self.pieces[rank].setdefault(name, []).append(
                        Piece(box, self.local(full, box)))
            kind = layout.Kind(transfer.dtype_name(full), tuple(shape))
            for rank, mine in enumerate(self.pieces):
                if name in mine:
                    declared[rank].tensors[name] = planning.Held(
                        kind, tuple(piece.box for piece in mine[name]), False)
        self.declared = declared
        self.agreed = planning.merge(declared)

    def local(self, full, box):
        found = boxes.narrow(full, box.offsets, box.sizes)
        turned = found.dim() == 2 and self.chance.random() < 0.3
        return found.t().contiguous().t() if turned else found.clone(
            memory_format=torch.contiguous_format)

    def write(self, found):
        taken = Taken()
        for one, pieces in zip(self.declared, self.pieces):
            plan = planning.Plan(self.agreed, found, one.rank, one.tensors, 4096 * self.size)
            made = batch.Batch(plan.writes, one.tensors)
            made.write(taken, transfer.Buffer(), sorted(plan.writes), pieces)
        return taken

    def read(self, found, taken):
        """Random boxes of each tensor, read into memory that is contiguous or not."""
        reader, wanted = transfer.Reader(Stored(taken, found), 1.0), []
        for name, full in self.full.items():
            for _ in range(3):
                box = random_box(self.chance, full.shape)
                expected = boxes.narrow(full, box.offsets, box.sizes)
                target = torch.zeros_like(self.local(full, box))
                reader.add_box(found, name, box, target)
                wanted.append((name, box, expected, target))
        reader.flush()
        return wanted


def wide(rows, columns, parts):
    """A layout of w in column blocks, and the plan of one rank that holds all of it."""
    shape = (rows, columns)
    bounds = [(at * columns // parts, (at + 1) * columns // parts) for at in range(parts)]
    found = layout.of_tensors({"w": layout.Kind("F32", shape)}, 4096, held={
        "w": [(Box((0, start), (rows, stop - start)), [0]) for start, stop in bounds]})
    whole = planning.Held(layout.Kind("F32", shape), (boxes.whole(shape),), False)
    agreed = planning.merge([planning.Declared(0, {"w": whole}, {}, {}, (), {})])
    return found, planning.Plan(agreed, found, 0, {"w": whole}, 4096), {"w": whole}


class Copies(unittest.TestCase):
    def test_random_boxes_have_the_bytes_of_random_saves(self):
        cut = 0
        with mock.patch.object(blocks, "BLOCK_ROWS_MIN", 1), \
                mock.patch.object(planning, "SPLIT_BYTES_MIN", 32), \
                mock.patch.object(transfer, "BUFFER_BYTES", 256):
            for seed in range(60):
                job = Job(random.Random(seed), seed)
                held = job.agreed.holders if seed % 3 else {
                    name: [(box, [0]) for box in partition(job.chance, boxes.whole(kind.shape), 4)]
                    for name, kind in job.agreed.kinds.items()}
                found = layout.of_tensors(job.agreed.kinds, 4096 * job.size, held=held)
                cut += bool(found.cuts)
                for name, box, expected, target in job.read(found, job.write(found)):
                    self.assertTrue(same(expected, target), (seed, name, box))
        self.assertGreater(cut, 30)

    def test_box_of_one_block_is_written_where_it_lies(self):
        rows, held = 100, layout.Kind("F32", (100, 8))
        mine = planning.Held(held, (Box((0, 4), (100, 4)),), False)
        other = planning.Held(held, (Box((0, 0), (100, 4)),), False)
        agreed = planning.merge([planning.Declared(rank, {"w": one}, {}, {}, (), {})
                                 for rank, one in enumerate((mine, other))])
        found = layout.of_tensors(agreed.kinds, 8192, held=agreed.holders)
        plan = planning.Plan(agreed, found, 0, {"w": mine}, 8192)
        made, taken = batch.Batch(plan.writes, {"w": mine}), Taken()
        piece = Piece(mine.boxes[0], filled((rows, 4), 1))
        made.write(taken, transfer.Buffer(), sorted(plan.writes), {"w": [piece]})
        self.assertEqual(len(made._array(sorted(plan.writes))), 1)
        self.assertEqual(taken.calls, 1)
        self.assertEqual(len(taken.bytes), rows * 4 * 4)

    def test_box_wider_than_a_block_goes_through_the_buffer(self):
        found, plan, held = wide(100, 9, 3)
        made, taken, full = batch.Batch(plan.writes, held), Taken(), filled((100, 9), 1)
        made.write(taken, transfer.Buffer(), [0], {"w": [Piece(held["w"].boxes[0], full)]})
        self.assertEqual(len(made._array([0])), 0)
        view, target = Stored(taken, found), torch.zeros(100, 9)
        reader = transfer.Reader(view, 1.0)
        reader.add_box(found, "w", boxes.whole((100, 9)), target)
        reader.flush()
        self.assertTrue(same(full, target))
        self.assertEqual(view.ranges, 3)  # one for each block, not for each row

    def test_blocks_that_fill_the_buffer_are_read_in_turn(self):
        found, plan, held = wide(70, 12, 3)
        taken, full = Taken(), filled((70, 12), 2)
        pieces = {"w": [Piece(held["w"].boxes[0], full)]}
        with mock.patch.object(transfer, "BUFFER_BYTES", 64 * 4 * 4):
            batch.Batch(plan.writes, held).write(taken, transfer.Buffer(), [0], pieces)
            target = torch.zeros(70, 12)
            reader = transfer.Reader(Stored(taken, found), 1.0)
            reader.add_box(found, "w", boxes.whole((70, 12)), target)
            reader.flush()
        self.assertTrue(same(full, target))


if __name__ == "__main__":
    unittest.main()
