"""Saver when the daemon is absent, killed, stopped or another one; memory of saves."""

import contextlib
import ctypes
import os
import signal
import tempfile
import threading
import unittest
from unittest import mock

import pytorch_support as support
import torch.distributed.checkpoint as dcp
from pytorch_support import StoreTest, ckptd, filled, ranks, saver, torch, zeroed
from support import Daemon, DaemonTest
from torch.distributed.checkpoint.api import CheckpointException

from ckptd import joining

LAYER = "layers.0.moe.experts.w1"
LOST = "no view of lineage 1 is complete, and .*@1 is damaged: .*000001.seg back and restart ckptd"


class DaemonDies(DaemonTest):
    shared = False

    def saver(self, **options):
        tiny = saver(self.tiny, socket=self.daemon.socket, patience=0.5, **options)
        self.addCleanup(tiny.session.close)
        return tiny

    def test_killed_in_the_middle_of_a_save(self):
        state = {"w": filled((1 << 20,), 1), "v": filled((1000,), 2)}
        tiny = self.saver()
        tiny.save(1, state).durable(support.TIMEOUT)
        with support.killing(self.daemon, "write_pieces", calls=1):
            pending = tiny.save(2, state)
        with self.assertRaises(ckptd.Unavailable):
            pending.durable(support.TIMEOUT)
        pending = tiny.save(3, state)  # still without a daemon: training goes on
        self.assertIsInstance(pending.failure, ckptd.Unavailable)
        self.daemon.start()
        tiny._patience = support.TIMEOUT  # this machine may be slow
        tiny.save(4, state).durable(support.TIMEOUT)
        found = zeroed(state)
        again = self.saver()
        tiny.close()
        self.assertEqual(again.restore(found).step, 4)
        self.assertTrue(torch.equal(found["w"], state["w"]))

    def test_lost_state_is_never_a_new_run(self):
        state = {"w": filled((1 << 20,), 1)}
        with contextlib.closing(self.saver()) as tiny:
            tiny.save(1, state).durable(support.TIMEOUT)
        self.daemon.stop()
        segment = os.path.join(self.folder, "data", "segments", "000001.seg")
        os.rename(segment, segment + ".away")
        self.daemon.start()
        for step in ("continue", "latest"):
            with self.assertRaisesRegex(ckptd.Corrupt, LOST):
                self.saver().restore(zeroed(state), step)
        with self.assertRaisesRegex(ckptd.FailedPrecondition, LOST):
            self.saver().save(2, state)
        self.daemon.stop()
        os.rename(segment + ".away", segment)
        self.daemon.start()
        self.assertEqual(self.saver().restore(zeroed(state)).step, 1)

    def test_partial_saves_wait_for_a_full_one(self):
        state = {LAYER: filled((4, 3), 1), "w": filled((3,), 2)}
        tiny = self.saver(experts=1, selector="rotation")
        with self.assertRaisesRegex(ckptd.InvalidArgument, "value odd"):
            tiny.save(1, {**state, "odd": object()})
        for step in (2, 3):
            tiny.save(step, state).durable(support.TIMEOUT)
        units = [commit["units"] for commit in reversed(self.log())]
        self.assertEqual(units, [6, 3], "all; then the values, w and one expert")

    def log(self):
        with self.session(control=True) as asker:
            return asker.query("log", target=self.tiny)

    def test_stopped_before_a_save_and_within(self):
        state = {"w": filled((1000,), 1)}
        for calls in (0, 1):
            with self.subTest(calls=calls):
                self.tiny = f"run-{calls}"
                tiny = self.saver()
                tiny.save(1, state).durable(support.TIMEOUT)
                with support.after_calls("write_pieces", calls, lambda: self.send(signal.SIGSTOP)):
                    if not calls:
                        self.send(signal.SIGSTOP)
                    pending = tiny.save(2, state)
                with self.assertRaisesRegex(ckptd.Unavailable, "has not answered for"):
                    pending.durable(support.TIMEOUT)
                self.send(signal.SIGCONT)
                tiny._patience = support.TIMEOUT
                tiny.save(3, state).durable(support.TIMEOUT)
                tiny.close()

    def send(self, signal_number):
        self.daemon._process.send_signal(signal_number)

    def test_a_refused_state_is_told_before_a_lost_daemon(self):
        tiny = self.saver()
        tiny.save(1, {"w": torch.ones(3), "odd": 1}).durable(support.TIMEOUT)

        def killing(name):
            self.daemon.stop(signal.SIGKILL)
            return False
        tiny._may_pickle = killing
        with self.assertRaisesRegex(ckptd.InvalidArgument, "value odd: object"):
            tiny.save(2, {"w": torch.ones(3), "odd": object()})

    def test_stopped_before_the_first_save(self):
        self.daemon._process.send_signal(signal.SIGSTOP)
        state = {"w": filled((1000,), 1)}
        # Longer than the test may last: only `patience` can end the waits.
        patient = saver(self.tiny, socket=self.daemon.socket, patience=0.5, timeout=3600)
        patient.session.description = patient.session.description._replace(timeout=3600.0)
        self.addCleanup(patient.session.close)
        for step in (1, 2):
            self.assertIsInstance(patient.save(step, state).failure,
                                  (ckptd.Unavailable, ckptd.DeadlineExceeded))
        self.daemon._process.send_signal(signal.SIGCONT)
        patient._patience = support.TIMEOUT
        patient.save(3, state).durable(support.TIMEOUT)

    def test_slow_before_a_restore(self):
        def body(rank, run, socket, pid):
            state = {"w": torch.full((5,), float(rank))}
            with ckptd.Saver(run, socket=socket, patience=0.3, timeout=support.TIMEOUT) as tiny:
                asked = tiny._plan_once

                def planned(state):
                    found = asked(state)
                    os.kill(pid, signal.SIGCONT)
                    return found
                tiny._plan_once = planned
                tiny.restore(state, step="continue")
                tiny.save(1, {"w": torch.ones(5)}).durable(support.TIMEOUT)
                return tiny.session.description.arena_bytes
        self.daemon._process.send_signal(signal.SIGSTOP)
        found = ranks(2, body, self.tiny, self.daemon.socket, self.daemon._process.pid)
        self.assertEqual(len(set(found)), 1)
        self.assertGreater(found[0], 0, "each rank has its share")

    def test_stopped_when_the_run_is_joined_again(self):
        state = {"w": filled((1000,), 1)}
        tiny = self.saver(timeout=3600)
        tiny.save(1, state).durable(support.TIMEOUT)
        tiny._epoch.leave(support.TIMEOUT)
        tiny._epoch.lost = lambda: []  # as after a long absence of the daemon
        self.daemon._process.send_signal(signal.SIGSTOP)
        self.assertIsInstance(tiny.save(2, state).failure, ckptd.Unavailable)
        self.daemon._process.send_signal(signal.SIGCONT)
        tiny._patience = support.TIMEOUT
        tiny.save(3, state).durable(support.TIMEOUT)

    def test_absent_at_the_first_save(self):
        self.daemon.stop(signal.SIGKILL)
        state = {"w": filled((1000,), 1)}
        tiny = self.saver()
        self.assertIsInstance(tiny.save(1, state).failure, ckptd.Unavailable)
        self.daemon.start()
        tiny.save(2, state).durable(support.TIMEOUT)


def arena_bytes_of(handle):
    size = ctypes.c_uint64()
    handle.library.ckpt_arena(handle.pointer, ctypes.byref(size))
    return size.value


class Askers(DaemonTest):
    """Sessions that ask the daemon alone, before a saver's own session is open."""

    def test_askers_take_no_arena(self):
        opened = []

        class Recorded(ckptd.Session):
            def handle(self):
                handle = super().handle()
                opened.append((self.description.control, arena_bytes_of(handle)))
                return handle
        for arena_bytes in (0, support.ARENA):
            with mock.patch.object(joining, "Session", Recorded):
                with ckptd.Saver(f"run-{arena_bytes}", socket=self.daemon.socket,
                                 arena_bytes=arena_bytes) as tiny:
                    tiny.restore({"w": torch.zeros(9)}, step="continue")
                    tiny.save(1, {"w": torch.ones(9)}).durable(support.TIMEOUT)
        self.assertGreaterEqual(len(opened), 2)
        self.assertEqual(set(opened), {(True, 0)})


class Stores(StoreTest):
    def test_ranks_of_different_stores_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            other = Daemon(folder)
            self.addCleanup(other.stop)
            for by_dcp in (False, True):
                with self.subTest(by_dcp=by_dcp):
                    found = ranks(2, of_another_store, self.tiny, other.socket, by_dcp)
                    for said in found:
                        self.assertRegex(said, "rank 0 uses the store .*, rank 1 the store ")
            for socket in (None, other.socket):
                with ckptd.Session(self.tiny, socket=socket, control=True) as asker:
                    self.assertNotIn(self.tiny, [one["run"] for one in asker.query("runs")])


def of_another_store(rank, run, socket, by_dcp):
    """A save of rank 1 to another daemon; what it raises."""
    state = {"w": filled((8,), 1)}
    options = {"socket": socket} if rank == 1 else {}
    try:
        if by_dcp:
            dcp.save(state, checkpoint_id="step-1", storage_writer=ckptd.dcp.Writer(run, **options))
        else:
            with saver(run, **options) as tiny:
                tiny.save(1, state)
    except (Exception, CheckpointException) as refused:
        return str(refused)
    return "nothing"


class Memory(StoreTest):
    def test_a_state_of_four_arenas_streams(self):
        state = {f"w{number}": filled((4 << 20,), number) for number in range(8)}  # 128 MiB
        found = zeroed(state)
        peak = [resident()]
        done = threading.Event()

        def watch():
            while not done.wait(0.001):
                peak[0] = max(peak[0], resident())
        before, watcher = peak[0], threading.Thread(target=watch)
        watcher.start()
        with saver(self.tiny) as tiny:
            tiny.save(1, state).durable(support.TIMEOUT)
            tiny.restore(found, exact=True)
        done.set()
        watcher.join()
        self.assertLess(peak[0] - before, 32 << 20, "no copy of the state")
        for name, value in state.items():
            self.assertTrue(torch.equal(value, found[name]), name)

    def test_resident_memory_is_flat_over_fifty_saves(self):
        state = {"w": filled((1 << 20,), 1), "t": filled((999, 999), 2).t(),
                 **{f"b{number}": filled((50,), number) for number in range(50)}}
        with saver(self.tiny, alarms="off") as tiny:
            for step in range(1, 61):
                tiny.save(step, state, per_rank={"rng": torch.get_rng_state()})
                tiny._recent[-1].durable(support.TIMEOUT)
                if step == 10:
                    before = resident()
        self.assertLess(resident() - before, 6 << 20)


def resident():
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":") for line in status)
    return int(fields["RssAnon"].split()[0]) << 10  # without the arena, which is shared memory


if __name__ == "__main__":
    unittest.main()
