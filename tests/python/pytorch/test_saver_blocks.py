"""Runs whose tensors are stored in blocks: saved under one sharding, restored under others."""

import os
import unittest
from unittest import mock

import pytorch_support as support
import torch.distributed.checkpoint as dcp
from pytorch_support import StoreTest, ckptd, filled, mesh, ranks, same, saver, torch
from test_boxes import strided
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from ckptd import blocks, convert

WEIGHT, EXPERTS = "layers.0.attention.wo", "layers.0.moe.experts.w2"
SHAPES = {WEIGHT: (200, 24), EXPERTS: (4, 70, 12)}
DTYPES = {WEIGHT: torch.bfloat16, EXPERTS: torch.float32}
COLUMNS = {WEIGHT: Shard(1), EXPERTS: Shard(2)}
ROWS = {WEIGHT: Shard(0), EXPERTS: Shard(1)}
WHOLE = {WEIGHT: Replicate(), EXPERTS: Replicate()}
OUTER = {WEIGHT: Shard(0), EXPERTS: Shard(0)}
# The dimension of the columns in an order of its own, as FSDP2 above TP has it.
STRIDED = {WEIGHT: _StridedShard(1, split_factor=2), EXPERTS: _StridedShard(2, split_factor=2)}
READERS = (((2,), [COLUMNS]), ((4,), [COLUMNS]), ((3,), [COLUMNS]), ((4,), [OUTER]),
           ((3,), [ROWS]), ((2,), [WHOLE]), ((2, 2), [OUTER, COLUMNS]), ((2, 2), [COLUMNS, OUTER]),
           ((2, 2), [STRIDED, COLUMNS]), ((2, 2), [ROWS, COLUMNS]))


def full(name, step):
    return filled(SHAPES[name], step * 10 + len(name), DTYPES[name])


def state_of(shape, placements, step, names=(WEIGHT, EXPERTS)):
    """The state of a step over a mesh; step 0 is zeros."""
    on, found = mesh(*shape), {}
    for name in names:
        tensor = full(name, step) if step else torch.zeros(SHAPES[name], dtype=DTYPES[name])
        mine = [one[name] for one in placements]
        found[name] = strided(tensor, on, mine) if any(
            hasattr(one, "split_factor") for one in mine) else distribute_tensor(
                tensor, on, mine, src_data_rank=None)
    return found


def same_as(state, shape, placements, step):
    expected = state_of(shape, placements, step, tuple(state))
    for name, value in state.items():
        assert same(value.to_local(), expected[name].to_local()), (name, shape, step)


def count_of(plan):
    """Fragments of tensors in a plan, without the values of each rank."""
    return len(plan.fragments(plan.units())) - len(plan.shares)


def save(rank, run, shape, placements, step):
    """Fragments of the plan, and names of tensors that the run stores."""
    with saver(run) as tiny:
        if step > 1:
            back = state_of(shape, placements, 0)
            tiny.restore(back)
            same_as(back, shape, placements, step - 1)
        tiny.save(step, state_of(shape, placements, step)).durable(support.TIMEOUT)
        return count_of(tiny._plan), stored(tiny.session, run)


def stored(session, run):
    return {tensor["name"] for unit in session.query("schema", target=run)["units"]
            for tensor in unit["tensors"]} - {"trainer"}


def load(rank, run, step, readers=READERS):
    """Restores under each of these shardings that has as many ranks."""
    count = 0
    for shape, placements in readers:
        if boxes_of(shape) != torch.distributed.get_world_size():
            continue
        back = state_of(shape, placements, 0)
        with saver(run) as tiny:
            tiny.restore(back, step=step, run=run)
        same_as(back, shape, placements, step)
        count += 1
    return count


def boxes_of(shape):
    size = 1
    for extent in shape:
        size *= extent
    return size


def blocks_of(columns, experts):
    """Names of the blocks of so many columns, and of slices with so many."""
    names = {f"{WEIGHT}[:,{at * 24 // columns}:{(at + 1) * 24 // columns}]"
             for at in range(columns)}
    return names | {f"{EXPERTS}[{expert}][:,{at * 12 // experts}:{(at + 1) * 12 // experts}]"
                    for expert in range(4) for at in range(experts)}


class Sharded(StoreTest):
    def restore_all(self, step):
        """Restores under all shardings of READERS, bit-equal."""
        counts = [ranks(size, load, self.tiny, step)[0] for size in (2, 3, 4)]
        self.assertEqual(sum(counts), len(READERS))

    def test_columns_are_one_fragment_per_rank(self):
        found = ranks(4, save, self.tiny, (4,), [COLUMNS], 1)
        # Each rank has one range of the weight, and of each slice.
        self.assertEqual(found, [(4 + 4 * 4, blocks_of(4, 4))] * 4)
        self.restore_all(1)

    def test_mesh_of_rows_and_columns(self):
        for (shape, placements), count in ((((2, 2), [OUTER, COLUMNS]), 4 + 4 * 2),
                                           (((2, 2), [COLUMNS, OUTER]), 4 + 4 * 2)):
            run = f"{self.tiny}-{count}-{placements[0] is OUTER}"
            found = ranks(4, save, run, shape, placements, 1)
            self.assertEqual(found[0], (count, blocks_of(2, 2)))
            for size in (3, 4):
                ranks(size, load, run, 1)

    def test_strided_shards_are_blocks_of_each_interval(self):
        found = ranks(4, save, self.tiny, (2, 2), [STRIDED, COLUMNS], 1)
        self.assertEqual(found[0], (4 + 4 * 4, blocks_of(4, 4)))
        self.restore_all(1)

    def test_other_rows_have_no_blocks(self):
        found = ranks(2, save, self.tiny, (2,), [OUTER], 1)
        self.assertEqual(found[0], (2 + 4, {WEIGHT, *(f"{EXPERTS}[{at}]" for at in range(4))}))

    def test_run_without_blocks_stays_without(self):
        with mock.patch.object(blocks, "BLOCK_ROWS_MIN", 1 << 30):
            before = ranks(2, save, self.tiny, (2,), [COLUMNS], 1)[0]
        self.assertEqual(before[0], 2 * 200 + 2 * 4 * 70)
        self.assertEqual(ranks(2, save, self.tiny, (2,), [COLUMNS], 2)[0], before)
        self.restore_all(2)

    def test_run_with_blocks_keeps_them_under_other_shardings(self):
        names = ranks(4, save, self.tiny, (4,), [COLUMNS], 1)[0][1]
        step = 1
        for shape, placements in (((2,), [OUTER]), ((1,), [WHOLE]), ((3,), [COLUMNS]),
                                  ((2, 2), [STRIDED, COLUMNS]), ((2,), [COLUMNS])):
            step += 1
            with mock.patch.object(blocks, "BLOCK_ROWS_MIN", 1 << 30 if step % 2 else 1):
                found = ranks(boxes_of(shape), save, self.tiny, shape, placements, step)
            self.assertEqual({tuple(sorted(one[1])) for one in found}, {tuple(sorted(names))})
        self.restore_all(step)

    def test_partial_saves_of_experts_in_blocks(self):
        self.assertEqual(ranks(2, save_some_experts, self.tiny), [4, 4])
        ranks(3, load_first_state, self.tiny)

    def test_sharded_adapter_grows_in_blocks(self):
        ranks(2, save_weight, self.tiny)
        count, names = ranks(2, grow_resumed, self.tiny)[0]
        self.assertEqual(count, 2 + 4 * 2)
        self.assertEqual(names, blocks_of(2, 2))
        self.restore_all(2)
        # The view before the growth has the weight alone.
        self.assertEqual(ranks(3, load_weight, self.tiny), [[WEIGHT]] * 3)

    def test_adapter_grows_within_one_job(self):
        found = ranks(2, grow_at_once, self.tiny)
        self.assertEqual(found[0], (2 + 4 * 2, blocks_of(2, 2)))
        self.restore_all(2)


def load_first_state(rank, run):
    back = state_of((3,), [ROWS], 0)
    with saver(run) as tiny:
        tiny.restore(back)
    same_as(back, (3,), [ROWS], 1)


def save_weight(rank, run):
    with saver(run, grow=True) as tiny:
        tiny.save(1, state_of((2,), [COLUMNS], 1, (WEIGHT,))).durable(support.TIMEOUT)


def save_some_experts(rank, run):
    """Partial saves of the same state: what they leave out is as before."""
    with saver(run, experts=2) as tiny:
        for step in range(1, 5):
            tiny.save(step, state_of((2,), [COLUMNS], 1)).durable(support.TIMEOUT)
        return len(tiny._units)


def grow_resumed(rank, run):
    """Resumes step 1 of the weight, and saves step 2 with experts, too."""
    with saver(run, grow=True) as tiny:
        tiny.restore(state_of((2,), [COLUMNS], 0), allow=[EXPERTS])
        tiny.save(2, state_of((2,), [COLUMNS], 2)).durable(support.TIMEOUT)
        return count_of(tiny._plan), stored(tiny.session, run)


def grow_at_once(rank, run):
    with saver(run, grow=True) as tiny:
        for step, names in ((1, (WEIGHT,)), (2, (WEIGHT, EXPERTS))):
            tiny.save(step, state_of((2,), [COLUMNS], step, names)).durable(support.TIMEOUT)
        return count_of(tiny._plan), stored(tiny.session, run)


def load_weight(rank, run):
    back = state_of((3,), [COLUMNS], 0, (WEIGHT,))
    with saver(run) as tiny:
        tiny.restore(back, step=1, run=run)
    same_as(back, (3,), [COLUMNS], 1)
    return list(back)


def writer(run):
    return ckptd.dcp.Writer(run, arena_bytes=support.ARENA, slab_bytes=1 << 20,
                            values_bytes=64 << 10, timeout=support.TIMEOUT)


def save_with_dcp(rank, run, shape, placements):
    tiny = writer(run)
    dcp.save(state_of(shape, placements, 1), checkpoint_id="step-1", storage_writer=tiny)
    found = count_of(tiny._mine().arranged.plan), stored(tiny._mine().session, run)
    tiny.close()
    return found


def load_with_dcp(rank, source):
    """Loads a run, or a folder of FileSystemWriter, under each sharding of so many ranks."""
    for shape, placements in READERS:
        if boxes_of(shape) != torch.distributed.get_world_size() or STRIDED in placements:
            continue  # DCP's planner refuses _StridedShard on some versions
        back = state_of(shape, placements, 0)
        if os.path.isdir(source):
            dcp.load(back, checkpoint_id=source)
        else:
            tiny = ckptd.dcp.Reader(source, arena_bytes=support.ARENA, slab_bytes=1 << 20)
            dcp.load(back, checkpoint_id="step-1", storage_reader=tiny)
            tiny.close()
        same_as(back, shape, placements, 1)


def register_alone(rank, run):
    with saver(run, values_bytes=convert.RANK_BYTES) as tiny:
        tiny.restore(state_of((4,), [COLUMNS], 0), step="continue")
        return stored(tiny.session, run)


class Dcp(StoreTest):
    def test_columns_are_one_fragment_per_rank(self):
        found = ranks(4, save_with_dcp, self.tiny, (4,), [COLUMNS])
        self.assertEqual(found[0], (4 + 4 * 4, blocks_of(4, 4)))
        for size in (2, 3, 4):
            ranks(size, load_with_dcp, self.tiny)
        self.assertEqual(ranks(3, load, self.tiny, 1), [2] * 3)

    def test_folder_of_a_run_with_blocks(self):
        ranks(4, save, self.tiny, (4,), [COLUMNS], 1)
        folder = os.path.join(self.folder, self.tiny, "step-1")
        told = convert.export_dcp(self.tiny, folder)
        self.assertEqual((told.tensors, told.bytes), (2, 200 * 24 * 2 + 4 * 70 * 12 * 4))
        for size in (2, 4):
            ranks(size, load_with_dcp, folder)
        convert.import_dcp(folder, self.tiny + "-back")
        with ckptd.Session(self.tiny + "-back", control=True) as asker:
            self.assertEqual(stored(asker, self.tiny + "-back"),
                             {WEIGHT, *(f"{EXPERTS}[{at}]" for at in range(4))})
        self.assertEqual(ranks(2, load, self.tiny + "-back", 1), [2] * 2)

    def test_import_into_a_registered_run_keeps_its_blocks(self):
        names = ranks(4, register_alone, self.tiny)[0]
        self.assertEqual(names, blocks_of(4, 4))
        ranks(2, save, self.tiny + "-source", (2,), [OUTER], 1)
        folder = os.path.join(self.folder, self.tiny, "step-1")
        convert.export_dcp(self.tiny + "-source", folder)
        convert.import_dcp(folder, self.tiny)
        for size in (2, 3, 4):
            ranks(size, load, self.tiny, 1)
        with ckptd.Session(self.tiny, control=True) as asker:
            self.assertEqual(stored(asker, self.tiny), names)

    def test_a_flipped_bit_is_no_block(self):
        ranks(4, register_alone, self.tiny)
        ranks(2, save, self.tiny + "-source", (2,), [OUTER], 1)
        folder = os.path.join(self.folder, self.tiny, "step-1")
        convert.export_dcp(self.tiny + "-source", folder)
        part = max((os.path.join(folder, name) for name in os.listdir(folder)), key=os.path.getsize)
        with open(part, "r+b") as file:
            file.seek(os.path.getsize(part) // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 4]))
        with self.assertRaisesRegex(ckptd.Corrupt, "its bytes do not match their CRC-32"):
            convert.import_dcp(folder, self.tiny)
        with ckptd.Session(self.tiny, control=True) as asker:
            self.assertEqual(asker.query("log", target=self.tiny), [])

    def test_names_like_blocks_are_refused(self):
        state = {"w[:,0:2]": torch.ones(3, 2), "w[:,2:4]": torch.ones(3, 2)}
        with saver(self.tiny) as tiny, self.assertRaisesRegex(
                ckptd.InvalidArgument, "tensor w.:,0:2.: it is named like a block of 'w'"):
            tiny.save(1, state)


if __name__ == "__main__":
    unittest.main()
