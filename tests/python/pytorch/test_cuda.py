"""CUDA tensors in Saver, DCP and Loop. Without a GPU: pinned parts, pieces, buffered reads."""

import collections
import contextlib
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import pytorch_support as support
from pytorch_support import StoreTest, ckptd, dist, filled, same, saver, torch, zeroed
from support import DaemonTest
import torch.distributed.checkpoint as dcp

from ckptd import device, transfer

DEVICE = "cuda"
needs_gpu = unittest.skipUnless(torch.cuda.is_available(), "PyTorch finds no CUDA device")
EXPANDABLE = """
import sys, torch, unittest
kept = torch.ones(1 << 20, device="cuda")
assert all(one["is_expandable"] for one in torch.cuda.memory._snapshot()["segments"])
unittest.main(module="test_cuda", argv=["test", "RoundTrips"])
"""


def on_gpu(shape, seed, dtype=torch.float32):
    return filled(shape, seed, dtype).to(DEVICE)


def check_same(test, one, other):
    for name, value in one.items():
        test.assertTrue(same(value.cpu(), other[name].cpu()), name)


class Pinning(unittest.TestCase):
    def test_parts_are_whole_slabs(self):
        slab = 48 << 20
        found = device.parts(200 * slab, slab)
        self.assertEqual([offset % slab for offset, _ in found], [0] * len(found))
        self.assertLessEqual(max(length for _, length in found), device.PIN_BYTES_MAX)
        self.assertEqual(sum(length for _, length in found), 200 * slab)

    def test_slab_above_the_limit_is_one_part(self):
        slab = device.PIN_BYTES_MAX + (2 << 20)
        self.assertEqual(device.parts(2 * slab, slab), [(0, slab), (slab, slab)])


class Pieces(unittest.TestCase):
    def test_last_pieces_are_small(self):
        left, found = 1 << 30, []
        while left > 0:
            found.append(min(device.piece_bytes(left, device.PIECE_BYTES_MAX), left))
            left -= found[-1]
        self.assertEqual(found, sorted(found, reverse=True))
        self.assertEqual((found[0], found[-1]), (device.PIECE_BYTES_MAX, device.PIECE_BYTES_MIN))
        self.assertLess(len(found), 70)

    def test_piece_of_a_small_arena_is_small(self):
        self.assertEqual(device.piece_bytes(1 << 30, 1 << 20), 1 << 20)


class FilledView:
    """A view whose byte at `offset` is offset + 1."""

    def __init__(self):
        self.reads = []  # ranges of each
        self.session = self
        self.run = None

    def unit(self, name, run):
        return 0, 1 << 20

    def read_words(self, words, names, timeout):
        self.reads.append(len(names))
        for at in range(0, len(words), 4):
            _, offset, size, address = words[at:at + 4]
            ctypes.memset(address, offset + 1, size)
        return []


class Reads(unittest.TestCase):
    """Through the buffer, with tensors of the host that are not contiguous."""

    def setUp(self):
        self.view = FilledView()
        self.reads = self.view.reads
        self.reader = transfer.Reader(self.view, support.TIMEOUT)

    def test_small_tensors_share_one_read(self):
        tensors = [torch.zeros(7, 3 + number, dtype=torch.uint8).t() for number in range(20)]
        for number, tensor in enumerate(tensors):
            self.reader.add("a", tensor, tensor.numel(), [0], number)
        self.reader.flush()
        self.assertEqual(self.reads, [20])
        for number, tensor in enumerate(tensors):
            self.assertTrue(bool((tensor == number + 1).all()))

    def test_full_buffer_is_read_before_its_reuse(self):
        tensors = [torch.zeros(5 << 10, 1 << 10, dtype=torch.uint8).t() for _ in range(7)]
        for number, tensor in enumerate(tensors):
            self.reader.add("a", tensor, tensor.numel(), [0], number)
        self.reader.flush()
        self.assertEqual(self.reads, [3, 3, 1])
        for number, tensor in enumerate(tensors):
            self.assertTrue(bool((tensor == number + 1).all()))

    def test_more_ranges_than_one_read_may_have(self):
        before, transfer.RANGES_MAX = transfer.RANGES_MAX, 4
        self.addCleanup(setattr, transfer, "RANGES_MAX", before)
        tensor = torch.zeros(3, 6, dtype=torch.uint8).t()
        self.reader.add("a", tensor, 3, [0, 3, 6, 9, 12, 15], 0)
        self.reader.flush()
        self.assertEqual(self.reads, [4, 2])
        self.assertEqual(tensor[:, 0].tolist(), [1, 4, 7, 10, 13, 16])


class HandOver(unittest.TestCase):
    def handed_over(self, wait):
        """The (place, sum) that are given back, if `wait` is how waiting for the device ends."""
        filled = []
        batch = types.SimpleNamespace(places=["a", "b"], sums=[1, 2], bytes=0, failure=None,
                                      settled=False)
        batch.wait = lambda: wait(batch)
        copies = device.Copies.__new__(device.Copies)
        copies._snapshot = types.SimpleNamespace(filled=lambda *place: filled.append(place))
        copies._on_the_way = collections.deque([batch])
        copies._bytes = 0
        copies._hangs = False
        with contextlib.suppress(KeyboardInterrupt, ckptd.DeadlineExceeded):
            copies._hand_over()
        return sorted(filled)

    def test_places_are_returned_after_device_is_done(self):
        self.assertEqual(self.handed_over(lambda batch: setattr(batch, "settled", True)),
                         [("a", 1), ("b", 2)])

    def test_places_stay_lent_when_all_waits_are_interrupted(self):
        def interrupted(_):
            raise KeyboardInterrupt
        self.assertEqual(self.handed_over(interrupted), [])

    def test_places_stay_lent_to_a_device_that_hangs(self):
        waits = []

        def hanging(_):
            waits.append(1)
            raise ckptd.DeadlineExceeded("cuda:0: not done")
        self.assertEqual(self.handed_over(hanging), [])
        self.assertEqual(len(waits), 1)


@needs_gpu
class RoundTrips(StoreTest):
    def round_trip(self, state, found=None, **options):
        found = zeroed(state) if found is None else found
        with saver(self.tiny, **options) as tiny:
            tiny.save(1, state).durable(support.TIMEOUT)
            tiny.restore(found, exact=True)
        check_same(self, state, found)

    def test_dtypes_are_bit_equal(self):
        kinds = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn,
                 torch.float8_e5m2, torch.int64, torch.uint8, torch.bool, torch.complex64)
        self.round_trip({str(kind).split(".")[1]: on_gpu((65, 33), seed, kind)
                         for seed, kind in enumerate(kinds)})

    def test_views_without_contiguous_memory(self):
        full = on_gpu((1 << 11, 3 << 10), 1)  # 24 MiB: more than the buffer
        self.round_trip({"transposed": full.t(), "columns": full[:, 5:9], "rows": full[1:100:3],
                         "part": full[7:90], "number": full[3, 3], "one": full[:1]})

    def test_cpu_and_cuda_tensors_in_one_state(self):
        self.round_trip({"layers.0.weight": on_gpu((300, 1000), 1),
                         "layers.0.bias": filled((300,), 2),
                         "layers.1.weight": filled((300, 1000), 3).t(),
                         "layers.1.bias": on_gpu((300,), 4)})

    def test_stacked_experts(self):
        self.round_trip({"layers.0.moe.experts.w1": on_gpu((6, 40, 80), 1, torch.bfloat16)})

    def test_many_small_tensors(self):
        self.round_trip({f"w{number}": on_gpu((number + 1,), number) for number in range(300)})

    def test_state_of_four_arenas_streams(self):
        self.round_trip({f"w{number}": on_gpu((8 << 20,), number) for number in range(4)})

    def test_saved_on_a_gpu_restored_on_the_cpu(self):
        state = {"w": on_gpu((100, 100), 1)}
        self.round_trip(state, {"w": torch.zeros(100, 100)})

    def test_overwritten_after_the_return_of_save(self):
        state = {f"w{number}": on_gpu((1 << 20,), number) for number in range(8)}
        before = {name: value.clone() for name, value in state.items()}
        found = zeroed(state)
        with saver(self.tiny, arena_bytes=64 << 20) as tiny:
            for step in (1, 2):
                pending = tiny.save(step, state)
                for value in state.values():
                    value.fill_(7)
                pending.durable(support.TIMEOUT)
                tiny.restore(found, exact=True)
                check_same(self, before, found)
                for name, value in before.items():
                    value += 1
                    state[name].copy_(value)

    def test_work_of_the_current_stream_is_awaited(self):
        found = {"w": torch.zeros(1 << 20, device=DEVICE)}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with saver(self.tiny) as tiny, torch.cuda.stream(stream):
            state = zeroed(found)
            torch.cuda._sleep(100_000_000)  # the device is busy: the fill below is still to come
            state["w"].fill_(3)
            tiny.save(1, state).durable(support.TIMEOUT)
            tiny.restore(found)
            self.assertTrue(bool((found["w"] == 3).all()))

    def test_resume_restores_rng_and_training(self):
        expected = self.train(None, 1, 6)[3:]
        self.train(self.tiny, 1, 3)
        self.assertEqual(self.train(self.tiny, 4, 6), expected)

    def train(self, run, first, last):
        """Losses of a model with dropout, saved in the last step if there is a run."""
        torch.manual_seed(first)
        torch.cuda.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5),
                                    torch.nn.Linear(64, 1)).to(DEVICE)
        with torch.no_grad():
            for seed, value in enumerate(model.parameters()):
                value.copy_(filled(value.shape, seed) / 8)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
        loop = run and ckptd.Loop(run, model, optimizer, arena_bytes=support.ARENA,
                                  slab_bytes=1 << 20, values_bytes=64 << 10)
        if loop:
            self.assertEqual(loop.restore().step, first - 1 or None)
        losses = []
        for step in range(first, last + 1):
            loss = model(on_gpu((16, 64), 50 + step)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if loop:
            loop.save(last).durable(support.TIMEOUT)
            loop.close()
        return losses

    def test_closed_session_leaves_nothing_pinned(self):
        with saver(self.tiny) as tiny:
            tiny.save(1, {"w": on_gpu((10,), 1)}).durable(support.TIMEOUT)
            arena = device.arena_of(tiny.session)
            self.assertTrue(arena.pinned)
            self.assertEqual(len(arena._parts), 1)
        self.assertEqual(arena._parts, [])

    def test_arena_that_cannot_be_pinned(self):
        state = {"w": on_gpu((3 << 20,), 1), "v": on_gpu((10,), 2)}
        with saver(self.tiny) as tiny:
            tiny.save(1, state).durable(support.TIMEOUT)
            arena = device.arena_of(tiny.session)
            with self.assertLogs("ckptd.device", "WARNING") as told:  # it is pinned already
                refused = device.Arena(arena.address, arena.size)
                refused.pin(1 << 20)
            self.assertFalse(refused.pinned)
            self.assertRegex(told.output[0], "CUDA error 712; tensors on a GPU are copied through")
            device._arenas[tiny.session.handle()] = refused
            for value in state.values():
                value += 1  # a kernel does not raise the error that was told
            tiny.save(2, state).durable(support.TIMEOUT)
            found = zeroed(state)
            tiny.restore(found, exact=True)
            check_same(self, state, found)


@needs_gpu
class OtherAllocators(unittest.TestCase):
    def test_expandable_segments(self):
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        done = subprocess.run([sys.executable, "-c", EXPANDABLE], env=environment, text=True,
                              cwd=pathlib.Path(__file__).resolve().parent, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=support.TIMEOUT)
        self.assertEqual(done.returncode, 0, done.stdout)


@needs_gpu
class Dcp(StoreTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        dist.init_process_group("gloo", init_method=f"file://{folder.name}/group", rank=0,
                                world_size=1)
        self.addCleanup(dist.destroy_process_group)
        self.state = {"w": on_gpu((300, 5000), 1, torch.bfloat16), "v": on_gpu((5, 7), 2).t(),
                      "host": filled((100,), 3), "step": 1}

    def side(self, kind):
        return kind(self.tiny, arena_bytes=support.ARENA, slab_bytes=1 << 20,
                    timeout=support.TIMEOUT)

    def check_loaded(self, expected):
        found = {**zeroed(expected), "step": 0}
        dcp.load(found, checkpoint_id="step-1", storage_reader=self.side(ckptd.dcp.Reader))
        self.assertEqual(found.pop("step"), 1)
        check_same(self, {name: expected[name] for name in found}, found)

    def test_synchronous_save(self):
        tiny = self.side(ckptd.dcp.Writer)
        dcp.save(self.state, checkpoint_id="step-1", storage_writer=tiny)
        self.check_loaded(self.state)
        tiny.close()

    def test_asynchronous_save_by_a_thread(self):
        before = {name: value.clone() if name != "step" else value
                  for name, value in self.state.items()}
        tiny = self.side(ckptd.dcp.Writer)
        saved = dcp.async_save(self.state, checkpoint_id="step-1", storage_writer=tiny)
        for name in ("w", "v", "host"):
            self.state[name].zero_()
        saved.result()
        self.check_loaded(before)
        tiny.close()


@needs_gpu
class DaemonDies(DaemonTest):
    shared = False

    def test_killed_with_copies_in_flight(self):
        state = {"w": on_gpu((4 << 20,), 1), "v": on_gpu((1000,), 2)}
        tiny = saver(self.tiny, socket=self.daemon.socket, patience=0.5)
        self.addCleanup(tiny.session.close)
        tiny.save(1, state).durable(support.TIMEOUT)
        with support.killing(self.daemon, "filled", calls=2):
            pending = tiny.save(2, state)
        with self.assertRaises(ckptd.Unavailable):
            pending.durable(support.TIMEOUT)
        self.daemon.start()
        tiny._patience = support.TIMEOUT  # this machine may be slow
        for value in state.values():
            value += 1
        tiny.save(3, state).durable(support.TIMEOUT)
        found = zeroed(state)
        self.assertEqual(tiny.restore(found).step, 3)
        check_same(self, state, found)

    def test_failed_save_leaves_no_place_lent(self):
        state = {"a": on_gpu((1 << 20,), 1), "b": on_gpu((1 << 20,), 2)}
        tiny = saver(self.tiny, socket=self.daemon.socket)
        self.addCleanup(tiny.session.close)
        tiny.save(1, state).durable(support.TIMEOUT)
        flush = device.Copies.flush

        def failing(copies):
            copies._copy_next()
            raise ckptd.InvalidArgument("no more")
        device.Copies.flush = failing
        try:
            with self.assertRaisesRegex(ckptd.InvalidArgument, "no more"):
                tiny.save(2, state)
        finally:
            device.Copies.flush = flush
        tiny.save(3, state).durable(support.TIMEOUT)
        self.assertEqual(tiny.restore(zeroed(state)).step, 3)


if __name__ == "__main__":
    unittest.main()
