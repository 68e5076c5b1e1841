"""Saves and restores against a real daemon: one process, two ranks, holds, queries, threads."""

import array
import ctypes
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import unittest

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

import support
from support import DaemonTest, ckptd, floats, save, unit
from ckptd import _abi

RANK = pathlib.Path(__file__).with_name("rank.py")


class RoundTrip(DaemonTest):
    def test_bytes_are_restored_in_another_session(self):
        data = {"layers.0": os.urandom(4000), "layers.1": os.urandom(4000)}
        session, epoch = self.joined()
        self.assertIsNone(epoch.resume)
        with epoch:
            info = save(epoch, 7, data)
        self.assertEqual((info.level, info.bytes, info.failure), (ckptd.Level.DURABLE, 8000, None))
        self.assertGreater(info.durable_after, 0)
        for part, seconds in info.timings._asdict().items():
            self.assertGreater(seconds, 0, part)
            self.assertLess(seconds, 60, part)
        self.assertGreaterEqual(info.stall, sum(info.timings[:5]))
        session.close()
        reader = self.session()
        into = {name: bytearray(4000) for name in data}
        restored = reader.restore().read(into)
        self.assertEqual(into, {name: bytearray(value) for name, value in data.items()})
        self.assertEqual([(r.unit, r.version, r.note) for r in restored],
                         [(name, ckptd.View(1, 7), None) for name in data])

    def test_blobs_belong_to_their_commit(self):
        session, epoch = self.joined(units=[unit("w")])
        with epoch:
            for step in (1, 2):
                state = bytes([step]) * 300_000
                with epoch.begin(step, blobs={"rng": len(state), "empty": 0},
                                 global_blobs={"loader": 3}) as snapshot:
                    snapshot.write("w", floats(step))
                    self.assertEqual(snapshot.write_blob("rng", state[:100_000]), 100_000)
                    snapshot.write_blob("rng", state[100_000:])
                    snapshot.write_blob("loader", b"abc", is_global=True)
                    with self.assertRaisesRegex(ckptd.InvalidArgument, "no blob named other"):
                        snapshot.write_blob("other", b"x")
                snapshot.wait()
            save(epoch, 3, {"w": floats(3)})
        for step in (1, 2):
            view = session.restore(step)
            self.assertEqual([(b.name, b.rank, b.is_global, b.bytes) for b in view.blobs()],
                             [("rng", 0, False, 300_000), ("empty", 0, False, 0),
                              ("loader", 0, True, 3)])
            self.assertEqual(view.read_blob("rng", 0), bytes([step]) * 300_000)
            self.assertEqual(view.read_blob("empty", 0), b"")
            self.assertEqual(view.read_blob("loader"), b"abc")
        with self.assertRaisesRegex(ckptd.NotFound, "there is one of rank 0"):
            session.restore(1).read_blob("rng", 1)
        self.assertEqual(session.restore(3).blobs(), [])
        with self.assertRaisesRegex(ckptd.NotFound, "step 3: no blob of rank 0 named rng"):
            session.restore(3).read_blob("rng", 0)

    def test_grown_unit_belongs_to_later_views(self):
        session, epoch = self.joined(units=[unit("w")])
        with epoch:
            save(epoch, 1, {"w": floats(1)})
            self.assertEqual(session.grow([unit("lora")]), {"lora": 1})
            save(epoch, 2, {"w": floats(2), "lora": floats(3)})
            other = ckptd.Unit("lora", (ckptd.Tensor("lora", "F32", (7,)),))
            with self.assertRaisesRegex(ckptd.FailedPrecondition, "unit lora: .* instead of"):
                session.grow([other])
        one = array.array("f", [0])
        session.restore(2).read([("lora", 0, one)])
        self.assertEqual(one[0], 3)
        with self.assertRaisesRegex(ckptd.NotFound, "unit lora: no version in this view"):
            session.restore(1).read([("lora", 0, one)])

    def test_unwritten_blob_prevents_end_of_snapshot(self):
        session, epoch = self.joined(units=[unit("w")])
        with epoch:
            snapshot = epoch.begin(1, blobs={"rng": 10})
            snapshot.write("w", floats(1))
            with self.assertRaisesRegex(ckptd.FailedPrecondition, "blob rng: bytes .0, 10. of"):
                snapshot.end()
            snapshot.abort("of this test")

    def test_views_by_step_tag_and_part(self):
        session, epoch = self.joined(units=[unit("w")])
        with epoch:
            for step in (1, 2, 3):
                save(epoch, step, {"w": floats(step)})
        session.query("tag", target=self.tiny + "@2", tag="good")
        one = array.array("f", [0])
        for step, value in ((1, 1), (2, 2), ("latest", 3), ("good", 2), (ckptd.View(1, 2), 2)):
            session.restore(step).read([("w", 4 * 999, one)])
            self.assertEqual(one[0], value, step)
        with self.assertRaisesRegex(ckptd.NotFound, self.tiny):
            session.restore(9).read([("w", 0, one)])

    def test_held_view_stays_during_partial_reads(self):
        session, epoch = self.joined(units=[unit("w")])
        with epoch:
            save(epoch, 1, {"w": floats(1)})
            save(epoch, 2, {"w": floats(2)})
        with session.restore(1) as view:
            self.assertEqual(view.view, ckptd.View(1, 1))
            self.assertEqual(session.query("status")["holds"][0]["step"], 1)
            with self.assertRaisesRegex(ckptd.Error, "~1@1: it is held by"):
                session.query("rm", target=self.tiny + "@1")
            half = floats(0, 500)
            for offset in (0, 2000):
                view.read([("w", offset, half)])
                view.renew()
                self.assertEqual(half, floats(1, 500))
        self.assertEqual(session.query("status")["holds"], [])
        session.query("rm", target=self.tiny + "@1")

    def test_a_run_resumes_where_it_stopped(self):
        for start in (0, 1, 2):
            session, epoch = self.joined(units=[unit("w")])
            self.assertEqual(epoch.resume.step if epoch.resume else 0, start)
            with epoch:
                save(epoch, start + 1, {"w": floats(start + 1)})
            session.close()
        session = self.session()
        session.register([unit("w")])
        self.assertEqual(session.join(resume=1).resume, ckptd.View(1, 1))

    def test_experts_metrics_and_metadata_are_kept(self):
        state = [ckptd.Unit(f"layers.0.experts.{e}", (ckptd.Tensor("w", "BF16", (8, 4)),), layer=0,
                            expert=e, part="weights") for e in range(2)]
        session = self.session()
        session.register(state, {"hf_config": {"num_experts": 2}})
        with session.join() as epoch:
            with epoch.begin(1, [state[1].name], metrics={"loss": 2.5}) as snapshot:
                snapshot.write(state[1].name, bytes(64))
            snapshot.wait()
        schema = session.query("schema", target=self.tiny)
        self.assertEqual(schema["metadata"]["hf_config"]["num_experts"], 2)
        self.assertEqual([(u["layer"], u["expert"], u["part"]) for u in schema["units"]],
                         [(0, 0, "weights"), (0, 1, "weights")])
        log = session.query("log", target=self.tiny)
        self.assertEqual((log[0]["metrics"], log[0]["experts"]), ({"loss": 2.5}, 1))

    def test_an_exception_in_the_block_aborts_the_snapshot(self):
        session, epoch = self.joined()
        with self.assertRaisesRegex(ZeroDivisionError, "of this test"):
            with epoch.begin(1) as snapshot:
                raise ZeroDivisionError("of this test")
        info = snapshot.info()
        self.assertEqual(info.level, ckptd.Level.FAILED)
        self.assertIn("ZeroDivisionError: of this test", str(info.failure))
        epoch.leave()
        self.assertEqual(session.query("log", target=self.tiny), [])

    def test_other_code_fills_places_of_the_arena(self):
        session, epoch = self.joined([unit("layers.0", 200_000)])  # 800 kB, slabs of 256 KiB
        data, crc32c = floats(1.5, 200_000).tobytes(), session.handle().library.ckpt_crc32c
        with epoch.begin(1) as snapshot:
            at, lent = 0, []
            while at < len(data):
                place = snapshot.reserve(0, at, len(data) - at)
                lent.append((place, data[at:at + place.length]))
                at += place.length
            for place, part in reversed(lent):
                ctypes.memmove(place.data, part, len(part))
                snapshot.filled(place, crc32c(place.data, place.length, 0))
        self.assertGreater(len(lent), 3)
        snapshot.wait(timeout=support.TIMEOUT)
        into = bytearray(len(data))
        session.restore().read({"layers.0": into})
        self.assertEqual(into, data)
        digits = ctypes.create_string_buffer(b"123456789")
        self.assertEqual(crc32c(ctypes.addressof(digits), 9, 0), 0xe3069283)
        self.assertEqual(crc32c(ctypes.addressof(digits) + 4, 5,
                                crc32c(ctypes.addressof(digits), 4, 0)), 0xe3069283)

    def test_many_pieces_are_written_in_one_call(self):
        session, epoch = self.joined(units=[unit("w"), unit("v")])
        data = {"w": floats(7), "v": floats(8)}
        pieces = []
        for name, values in data.items():
            address, count = values.buffer_info()
            half = count * 4 // 2
            pieces += [(session.unit(name)[0], at, half, address + at) for at in (0, half)]
        with epoch:
            snapshot = epoch.begin(1)
            snapshot.write_pieces((_abi.ckpt_piece * len(pieces))(*pieces))
            snapshot.write_pieces((_abi.ckpt_piece * 0)())
            with self.assertRaisesRegex(ckptd.InvalidArgument, "unit w: .* next byte"):
                snapshot.write_pieces((_abi.ckpt_piece * 1)(pieces[0]))
            snapshot.end()
            snapshot.wait()
        for name, values in data.items():
            found = floats(0)
            session.restore(1).read({name: found})
            self.assertEqual(found, values)

    def test_one_answer_for_all_ranges_of_a_unit(self):
        session, epoch = self.joined(units=[unit("w"), unit("v")])
        with epoch:
            save(epoch, 1, {"w": floats(1), "v": floats(2)})
        found = {"w": floats(0), "v": floats(0)}
        words, names = array.array("Q"), []
        for at in (0, 2000):
            for name, values in found.items():
                words.extend((session.unit(name)[0], at, 2000, values.buffer_info()[0] + at))
                names.append(name)
        answers = session.restore(1).read_words(words, names)
        self.assertEqual([(one.unit, one.version, one.note, one.bytes_memory + one.bytes_disk)
                          for one in answers],
                         [("w", ckptd.View(1, 1), None, 4000), ("v", ckptd.View(1, 1), None, 4000)])
        self.assertEqual(found, {"w": floats(1), "v": floats(2)})
        self.assertEqual(session.restore(1).read_words(array.array("Q"), []), [])

    @unittest.skipIf(torch is None, "torch is not installed")
    def test_tensors_of_torch(self):
        saved = {name: torch.randn(16, 8).to(dtype) for name, dtype in (
            ("a", torch.bfloat16), ("b", torch.float8_e4m3fn), ("c", torch.float32))}
        session = self.session()
        session.register([ckptd.Unit.of(name, {"w": data}) for name, data in saved.items()])
        with session.join() as epoch:
            save(epoch, 1, saved)
        into = {name: torch.zeros_like(data) for name, data in saved.items()}
        session.restore().read(into)
        for name, data in saved.items():
            self.assertTrue(torch.equal(data.view(torch.uint8), into[name].view(torch.uint8)), name)
        tensor = session.query("schema", target=self.tiny)["units"][0]["tensors"][0]
        self.assertEqual((tensor["dtype"], tensor["shape"]), ("BF16", [16, 8]))

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_arrays_of_numpy(self):
        saved = numpy.arange(1000, dtype="f4").reshape(10, 100)
        session = self.session()
        session.register([ckptd.Unit.of("w", {"w": saved})])
        with session.join() as epoch:
            save(epoch, 1, {"w": saved})
        into = numpy.zeros_like(saved)
        session.restore().read({"w": into})
        self.assertTrue((into == saved).all())
        session.restore().read([("w", 400, into[0])])  # a row, from another one
        self.assertTrue((into[0] == saved[1]).all())

    def test_poll_updates_snapshot_between_steps(self):
        _, epoch = self.joined(units=[unit("w")])
        with epoch.begin(1) as snapshot:
            snapshot.write("w", floats(1))
        while snapshot.info().level < ckptd.Level.DURABLE:
            epoch.session.poll(support.TIMEOUT)
        self.assertEqual(epoch.session.silence(), 0)
        self.assertIsNone(epoch.lost())


class Processes(DaemonTest):
    def ranks(self, size, steps):
        started = [subprocess.Popen(
            [sys.executable, str(RANK), self.daemon.socket, self.tiny, str(rank), str(size),
             str(steps)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for rank in range(size)]
        said = [process.communicate(timeout=100) for process in started]
        self.assertEqual([process.returncode for process in started], [0] * size, said)
        return {out.strip() for out, _ in said}

    def test_two_ranks_save_and_one_resumes(self):
        self.assertEqual(self.ranks(2, 3), {"3"})
        self.assertEqual(self.ranks(1, 1), {"4"})
        log = self.session().query("log", target=self.tiny)
        self.assertEqual([commit["step"] for commit in log], [4, 3, 2, 1])

    def test_a_description_is_pickled_into_another_process(self):
        session = self.session(client_name="pickled")
        session.open()
        other = pickle.loads(pickle.dumps(session))
        self.addCleanup(other.close)
        self.assertEqual(other.description, session.description)
        mine = [s for s in other.query("status")["sessions"] if s["client"] == "pickled"]
        self.assertEqual(len(mine), 2)

    def test_threads_take_turns(self):
        session = self.session()
        failures = []

        def ask():
            try:
                for _ in range(20):
                    session.query("ping")
            except Exception as error:  # shown below
                failures.append(error)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
