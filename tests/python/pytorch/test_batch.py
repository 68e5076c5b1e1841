"""A save's work between two plans: the batch of writes, and the facts of tensors seen before."""

import contextlib
import ctypes
import gc
import random
import unittest
from unittest import mock

import pytorch_support as support
from pytorch_support import StoreTest, ckptd, dist, filled, mesh, ranks, saver, torch
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Shard

from ckptd import batch, boxes, joining, layout, planning, restoring, state, transfer

EXPERTS = "layers.0.moe.experts.w1"


class Taken:
    """A snapshot that keeps the bytes of each unit."""

    session = None

    def __init__(self):
        self.bytes = {}  # (unit, offset) -> byte
        self.calls = 0

    def write_pieces(self, pieces):
        self.calls += 1
        for piece in pieces:
            raw = ctypes.string_at(piece.data, piece.length)
            for at, byte in enumerate(raw, piece.offset):
                assert (piece.unit, at) not in self.bytes, "written twice"
                self.bytes[piece.unit, at] = byte


def planned(tensors, ranks_of=lambda name: [0], values=8192):
    """(plan, state) of rank 0; `ranks_of` says which ranks hold a tensor."""
    mine = state.Examiner(0).examine(tensors)
    size = 1 + max(max(ranks_of(name)) for name in mine.held)
    declared = [planning.Declared(rank, {name: held for name, held in mine.held.items()
                                         if rank in ranks_of(name)}, {}, {}, (), {})
                for rank in range(size)]
    agreed = planning.merge(declared)
    found = layout.of_tensors(agreed.kinds, values * size)
    return planning.Plan(agreed, found, 0, mine.held, values * size), mine


def one_by_one(plan, mine):
    """The writes of the plan, each on its own."""
    taken = Taken()
    for unit, writes in plan.writes.items():
        for one in writes:
            data = state.data_of(mine.pieces[one.name], one)
            with transfer.Writer(taken, transfer.Buffer()) as writer:
                writer.write(unit, data, one.length, one.starts, one.offset)
    return taken.bytes


def written(made, plan, mine, units=None):
    taken = Taken()
    made.write(taken, transfer.Buffer(), sorted(plan.writes) if units is None else units,
               mine.pieces)
    return taken


class Batches(unittest.TestCase):
    def test_random_states_give_bytes_of_single_writes(self):
        chance = random.Random(3)
        for seed in range(40):
            tensors = {}
            for number in range(chance.randint(1, 5)):
                shape = [chance.randint(1, 6) for _ in range(chance.randint(0, 3))]
                name = f"layers.{number}.moe.experts.w1" if len(shape) == 3 else f"w{number}"
                full = filled(shape, seed * 10 + number,
                              chance.choice([torch.float32, torch.bfloat16, torch.uint8]))
                tensors[name] = full.t() if len(shape) == 2 and chance.random() < 0.5 else full
            plan, mine = planned(tensors)
            made = batch.Batch(plan.writes, mine.held)
            self.assertEqual(written(made, plan, mine).bytes, one_by_one(plan, mine), seed)

    def test_replica_cut_over_ranks_is_written_in_part(self):
        with mock.patch.object(planning, "SPLIT_BYTES_MIN", 16):
            plan, mine = planned({EXPERTS: filled((4, 3, 5), 1), "w": filled((1, 7, 3), 2)},
                                 lambda name: [0, 1, 2])
        made = batch.Batch(plan.writes, mine.held)
        found = written(made, plan, mine).bytes
        self.assertEqual(found, one_by_one(plan, mine))
        self.assertEqual(len(found), plan.bytes_mine)

    def test_moved_tensor_is_read_at_its_new_address(self):
        tensors = {EXPERTS: filled((2, 3, 4), 1), "w": filled((5,), 2)}
        plan, mine = planned(tensors)
        made = batch.Batch(plan.writes, mine.held)
        written(made, plan, mine)
        later = state.examine({EXPERTS: filled((2, 3, 4), 3), "w": tensors["w"]}, 0)
        self.assertEqual(written(made, plan, later).bytes, one_by_one(plan, later))

    def test_tensor_without_contiguous_memory_joins_later(self):
        plan, mine = planned({"w": filled((3, 4), 1), "x": filled((4,), 2)})
        made = batch.Batch(plan.writes, mine.held)
        for seed in (1, 2, 3):
            full = filled((3, 4), seed)
            turned = full if seed == 2 else full.t().contiguous().t()
            now = state.examine({"w": turned, "x": filled((4,), seed)}, 0)
            self.assertEqual(written(made, plan, now).bytes, one_by_one(plan, now), seed)

    def test_an_interrupted_write_leaves_no_old_address(self):
        names = ["u", "v", "w"]
        plan, mine = planned({name: filled((4,), at) for at, name in enumerate(names)})
        made = batch.Batch(plan.writes, mine.held)
        for calls in range(5):  # calls of host_address before the interrupt
            written(made, plan, mine)
            later = state.examine({name: filled((4,), at + 9) for at, name in enumerate(names)}, 0)
            left = [calls]

            def interrupting(data, original=transfer.host_address):
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
                return original(data)
            with mock.patch.object(transfer, "host_address", interrupting), \
                    contextlib.suppress(KeyboardInterrupt):
                written(made, plan, later)
            with mock.patch.object(batch.Batch, "_add", side_effect=KeyboardInterrupt), \
                    contextlib.suppress(KeyboardInterrupt):
                written(made, plan, mine)
            self.assertEqual(written(made, plan, later).bytes, one_by_one(plan, later), calls)

    def test_units_of_a_partial_save_alone(self):
        plan, mine = planned({EXPERTS: filled((4, 3, 5), 1), "w": filled((7,), 2)})
        made = batch.Batch(plan.writes, mine.held)
        units = sorted(plan.writes)[1:3]
        expected = {key: byte for key, byte in one_by_one(plan, mine).items() if key[0] in units}
        self.assertEqual(written(made, plan, mine, units).bytes, expected)

    def test_contiguous_tensors_need_one_call(self):
        plan, mine = planned({f"w{number}": filled((9,), number) for number in range(50)})
        made = batch.Batch(plan.writes, mine.held)
        self.assertEqual(written(made, plan, mine).calls, 1)

    def test_many_rows_stay_out_of_the_array(self):
        rows = batch.RUNS_MAX + 1
        held = planning.Held(layout.Kind("U8", (rows, 4)), (boxes.Box((0, 0), (rows, 2)),), False)
        length, starts = boxes.runs((rows, 4), held.boxes[0])
        writes = {7: [planning.Write("w", 0, boxes.WHOLE, None, boxes.WHOLE, 7, 0, length,
                                      starts)]}
        full = filled((rows, 2), 1, torch.uint8)
        pieces = {"w": [boxes.Piece(held.boxes[0], full)]}
        taken = Taken()
        made = batch.Batch(writes, {"w": held})
        made.write(taken, transfer.Buffer(), [7], pieces)
        self.assertEqual(len(made._array([7])), 0)
        self.assertEqual(bytes(taken.bytes[7, row * 4 + at] for row in range(rows)
                               for at in range(2)), bytes(full.reshape(-1).tolist()))


def part(local, shape, found):
    """A tensor that says which boxes of a larger one it holds, one below the other."""
    local.global_shape, local.global_offsets = shape, [offsets for offsets, _ in found]
    local.local_sizes = [sizes for _, sizes in found]
    local.local_offsets = [(sum(sizes[0] for _, sizes in found[:at]), 0)
                           for at in range(len(found))]
    return local


class Facts(unittest.TestCase):
    def setUp(self):
        self.examiner = state.Examiner(0)

    def looks(self, tensors):
        """(names that were looked at again, the state)"""
        with mock.patch.object(boxes, "pieces_of", wraps=boxes.pieces_of) as looked:
            found = self.examiner.examine(tensors)
        return [call.args[1].split()[1] for call in looked.call_args_list], found

    def test_same_tensors_are_looked_at_once(self):
        tensors = {"w": filled((3, 4), 1), "empty": torch.empty(0, 3), "p": torch.nn.Parameter(
            filled((2,), 2))}
        again = {name: value.detach().clone() for name, value in tensors.items()}
        again["p"] = torch.nn.Parameter(again["p"])
        self.assertEqual(sorted(self.looks(tensors)[0]), ["empty", "p", "w"])
        looked, found = self.looks(again)
        self.assertEqual(looked, [])
        self.assertEqual(found, state.examine(again, 0)._replace(pieces=found.pieces))
        self.assertEqual(found.pieces["w"][0].data.data_ptr(), again["w"].data_ptr())

    def test_changed_facts_are_noticed(self):
        self.looks({"w": filled((3, 4), 1)})
        for other in (filled((4, 3), 1), filled((3, 4), 1, torch.bfloat16),
                      filled((4, 3), 1).t(), filled((3, 5), 1)):
            looked, found = self.looks({"w": other})
            self.assertEqual(looked, ["w"])
            self.assertEqual(found.held["w"].kind.shape, tuple(other.shape))

    def test_tensor_that_lost_its_memory_is_refused(self):
        self.looks({"w": filled((3, 4), 1)})
        gone = filled((3, 4), 1)
        gone.untyped_storage().resize_(0)
        for wrong in (torch.empty(3, 4, device="meta"), gone):
            with self.assertRaisesRegex(ckptd.InvalidArgument, "tensor w on rank 0"):
                self.looks({"w": wrong})

    def test_each_part_of_a_tensor_keeps_its_memory(self):
        parts = part(filled((4, 2), 1), (8, 2), [((0, 0), (2, 2)), ((6, 0), (2, 2))])
        for _ in range(3):
            found = self.looks({"w": parts})[1]
            self.assertEqual([piece.data.tolist() for piece in found.pieces["w"]],
                             [parts[:2].tolist(), parts[2:].tolist()])
            self.assertEqual([box.offsets for box in found.held["w"].boxes], [(0, 0), (6, 0)])

    def test_parts_are_no_tensors_of_that_shape(self):
        parts = [part(filled((2, 2), at), (6, 2), [((2 * at, 0), (2, 2))]) for at in range(2)]
        tensors = {"a": parts[0], "b": filled((2, 2), 3), "c": parts[1]}
        for _ in range(2):
            found = self.looks(tensors)[1].held
            self.assertEqual([found[name].kind.shape for name in "abc"], [(6, 2), (2, 2), (6, 2)])
            self.assertEqual([found[name].boxes[0].offsets for name in "ac"], [(0, 0), (2, 0)])

    def test_memory_of_another_dtype_is_refused(self):
        other = part(filled((2, 2), 1), (2, 2), [((0, 0), (2, 2))])
        found = boxes.pieces_of(other, "tensor w")
        for dtype in (torch.bfloat16, torch.float64):
            with mock.patch.object(boxes, "pieces_of", return_value=found._replace(
                    pieces=[boxes.Piece(found.pieces[0].box, other.to(dtype))])):
                with self.assertRaisesRegex(ckptd.InvalidArgument, "tensor w on rank 0: its part"):
                    self.examiner.examine({"w": other})

    def test_tie_that_appears_is_noticed(self):
        one, other = filled((3,), 1), filled((3,), 2)
        self.assertEqual(self.looks({"a": one, "b": other})[1].aliases, {})
        self.assertEqual(self.looks({"a": one, "b": one})[1].aliases, {"b": "a"})
        self.assertEqual(self.looks({"a": one, "b": one.view(1, 3)})[1].aliases, {})

    def test_collector_is_paused_and_left_as_before(self):
        self.addCleanup(gc.enable)
        seen = []
        with mock.patch.object(boxes, "pieces_of", wraps=boxes.pieces_of,
                               side_effect=lambda *_: seen.append(gc.isenabled()) or mock.DEFAULT):
            for seed, before in enumerate((True, False)):
                (gc.enable if before else gc.disable)()
                state.examine({"w": filled((seed + 1,), 1)}, 0)
                self.assertEqual(gc.isenabled(), before)
            with self.assertRaises(ckptd.InvalidArgument):
                gc.enable()
                state.examine({"w": torch.empty(2, device="meta")}, 0)
        self.assertTrue(gc.isenabled())
        self.assertEqual(seen, [False] * 3)

    def test_other_mesh_or_placement_is_noticed(self):
        ranks(2, other_placements)


def other_placements(rank):
    examiner = state.Examiner(rank)
    local = filled((4, 4), rank)
    for on in (mesh(2), mesh(1, 2)):
        for dim in (0, 1):
            tensor = DTensor.from_local(local, on, [Shard(dim)] * on.ndim, run_check=False)
            found = examiner.examine({"w": tensor})
            assert found.held == state.examine({"w": tensor}, rank).held, (on, dim)


def count_steps(rank, run):
    """Registrations, joins and the epoch that a restore of a new run leaves to its first save."""
    now = {"w": torch.ones(4), "text": "a"}
    with saver(run) as tiny:
        assert tiny.restore(now, step="continue").step is None
        with mock.patch.object(joining, "register") as registered, \
                mock.patch.object(joining, "join") as joined, \
                mock.patch.object(planning, "Plan") as planned_again:
            tiny.save(1, now).durable(support.TIMEOUT)
        return registered.called or joined.called or planned_again.called


def save_in_turns(rank, run):
    """Registrations of three saves through DCP."""
    called = []
    registered = joining.register

    def register(*arguments):
        called.append(arguments)
        return registered(*arguments)
    with mock.patch.object(joining, "register", register):
        tiny = ckptd.dcp.Writer(run, arena_bytes=support.ARENA, slab_bytes=1 << 20,
                                values_bytes=64 << 10, timeout=support.TIMEOUT)
        local = torch.ones(2, 4)
        now = {"w": DTensor.from_local(local, mesh(2), [Shard(0)], run_check=False), "n": 0}
        for step in (1, 2, 3):
            local += 1
            now["n"] = step
            dcp.save(now, checkpoint_id=f"step-{step}", storage_writer=tiny)
        tiny.close()
    local.zero_()
    back = ckptd.dcp.Reader(run, arena_bytes=support.ARENA, slab_bytes=1 << 20)
    dcp.load(now, checkpoint_id="step-2", storage_reader=back)
    back.close()
    assert local.tolist() == [[3.0] * 4] * 2 and now["n"] == 2, (local, now)
    return len(called)


def count_reads(rank, run):
    """Requests for the documents of values, of two ranks that both have some."""
    now = {"w": torch.ones(4), "text": "a"}
    with saver(run) as tiny:
        tiny.save(1, now, per_rank={"rank": rank}).durable(support.TIMEOUT)
        dist.barrier()
        with mock.patch.object(restoring.Restore, "read", autospec=True,
                               side_effect=ckptd.Restore.read) as read:
            assert tiny.restore(now, step=1).per_rank == {"rank": rank}
        return read.call_count


class Saves(StoreTest):
    def test_restore_of_a_new_run_joins(self):
        self.assertEqual(ranks(2, count_steps, self.tiny), [False, False])

    def test_later_saves_of_dcp_register_nothing(self):
        self.assertEqual(ranks(2, save_in_turns, self.tiny), [1, 1])

    def test_short_values_are_read_at_once(self):
        self.assertEqual(ranks(2, count_reads, self.tiny), [1, 1])


if __name__ == "__main__":
    unittest.main()
