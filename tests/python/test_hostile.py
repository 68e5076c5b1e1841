"""Wrong uses of sessions, epochs, snapshots, restores: a class, a sentence, nothing committed."""

import unittest

import support
from support import DaemonTest, ckptd, floats, save, unit


class WrongNumbersAndNames(unittest.TestCase):
    """Refused before anything is sent: ctypes would cut these to what fits."""

    def test_options_of_a_session(self):
        for sentence, options in (("session: unknown option colour; known", {"colour": 1}),
                                  ("alarms loud is none of", {"alarms": "loud"}),
                                  ("arena_bytes -1: give", {"arena_bytes": -1}),
                                  ("slab_bytes 18446744073709551616", {"slab_bytes": 1 << 64}),
                                  ("arena_bytes 1.5: give a whole", {"arena_bytes": 1.5}),
                                  ("timeout nan: give seconds", {"timeout": float("nan")}),
                                  ("timeout -1: give seconds", {"timeout": -1}),
                                  ("socket 'a.x00b': it has a zero", {"socket": "a\0b"}),
                                  ("client_name .*not valid Unicode", {"client_name": "\ud800"})):
            with self.assertRaisesRegex(ckptd.InvalidArgument, sentence):
                ckptd.Session("tiny", **{"socket": "/nonexistent", **options}).open()

    def test_units(self):
        for sentence, wrong in (
                ("tensor w: dtype F31 is none of", ckptd.Unit("u", (
                    ckptd.Tensor("w", "F31", (1,)),))),
                ("tensor w: extent -1: give", ckptd.Unit("u", (ckptd.Tensor("w", "F32", (-1,)),))),
                ("unit u: codec gzip is none of", ckptd.Unit("u", bytes=4, codec="gzip")),
                ("unit u: codec auto was removed: use none, or zstd where the disk is slower",
                 ckptd.Unit("u", bytes=4, codec="auto")),
                ("unit u: layer -2: give", ckptd.Unit("u", bytes=4, layer=-2)),
                ("unit u: expert 4294967296: give", ckptd.Unit("u", bytes=4, expert=1 << 32)),
                ("unit u: bytes -4: give", ckptd.Unit("u", bytes=-4)),
                ("unit 'u.x00': it has a zero byte", ckptd.Unit("u\0", bytes=4))):
            with self.assertRaisesRegex(ckptd.InvalidArgument, sentence):
                ckptd.Session("tiny", socket="/nonexistent").register([wrong])


class WrongCalls(DaemonTest):
    def setUp(self):
        super().setUp()
        self.owner, self.epoch = self.joined(units=[unit("w")])

    def check_nothing_committed(self):
        self.assertEqual(self.owner.query("log", target=self.tiny), [])

    def test_joins(self):
        session = self.session()
        session.register([unit("w")])
        for sentence, options in (("rank 2 is not below size 2", {"rank": 2, "size": 2}),
                                  ("rank -1: give", {"rank": -1}),
                                  ("size 4294967297: give", {"size": (1 << 32) + 1}),
                                  ("resume 'sometime' is neither", {"resume": "sometime"}),
                                  ("resume None is neither", {"resume": None})):
            with self.assertRaisesRegex(ckptd.InvalidArgument, sentence):
                session.join(**options)

    def test_plans(self):
        Fragment = ckptd.Fragment
        for step, (sentence, arguments) in enumerate((
                ("it has no unit nothing", {"units": ["nothing"]}),
                ("step -1: give", {"step": -1}),
                ("unit w: offset -4: give", {"fragments": [Fragment(0, "w", -4, 4)]}),
                ("unit w: no fragment covers", {"fragments": [Fragment(0, "w", 0, 3996)]}),
                ("unit w", {"fragments": [Fragment(0, "w", 0, 4000), Fragment(0, "w", 0, 4000)]}),
                ("rank 7", {"fragments": [Fragment(7, "w", 0, 4000)]}))):
            with self.subTest(sentence):
                with self.assertRaisesRegex(ckptd.InvalidArgument, sentence):
                    self.epoch.begin(**{"step": step, **arguments})
        self.check_nothing_committed()

    def test_ranks_without_fragments(self):
        epoch = ckptd.Epoch(self.owner, type("Joined", (), {
            "epoch": 1, "rank": 0, "size": 2, "lineage": 1, "has_resume": 0}))
        with self.assertRaisesRegex(ckptd.InvalidArgument, "step 1: 2 ranks need fragments"):
            epoch.begin(1)

    def test_writes(self):
        with self.assertRaisesRegex(ckptd.FailedPrecondition, r"unit w: bytes \[2000, 4000\)"):
            with self.epoch.begin(1) as snapshot:
                for sentence, arguments in (
                        ("unit w: shape .* not contiguous", ("w", memoryview(bytes(8000))[::2])),
                        ("it has no unit v", ("v", b"")),
                        ("step 1 unit w: NoneType shows no memory", ("w", None)),
                        ("unit w", ("w", bytes(4001))),
                        ("unit w: offset -1: give", ("w", bytes(4), -1)),
                        ("unit w", ("w", bytes(4), 3997))):
                    with self.assertRaisesRegex(ckptd.InvalidArgument, sentence):
                        snapshot.write(*arguments)
                snapshot.write("w", bytes(2000))
                snapshot.end()  # half of it is missing
        self.assertEqual(snapshot.info().level, ckptd.Level.FAILED)
        self.check_nothing_committed()

    def test_targets(self):
        save(self.epoch, 1, {"w": floats(1)})
        restore = self.owner.restore()
        for sentence, targets in (
                ("unit w: it is read-only", {"w": bytes(4000)}),
                ("unit w: the target has 3999 bytes, the unit 4000", {"w": bytearray(3999)}),
                ("unit w: shape .* not contiguous", {"w": memoryview(bytearray(8000))[::2]}),
                ("it has no unit v", {"v": bytearray(1)}),
                ("unit w", [("w", 3999, bytearray(2))]),
                ("unit w: offset -1: give", [("w", -1, bytearray(2))])):
            with self.subTest(sentence), self.assertRaisesRegex(ckptd.InvalidArgument, sentence):
                restore.read(targets)
        with self.assertRaisesRegex(ckptd.FailedPrecondition, "nothing is held"):
            restore.renew()
        self.assertEqual(restore.read({}), [])

    def test_a_closed_session(self):
        snapshot = self.epoch.begin(1)
        self.owner.close()
        self.owner.close()
        for use in (self.owner.open, self.owner.poll, self.epoch.leave, snapshot.info,
                    snapshot.end, lambda: self.epoch.begin(2), self.owner.restore().__enter__,
                    lambda: self.owner.query("status")):
            with self.assertRaisesRegex(ckptd.FailedPrecondition,
                                        "session of run test_a_closed_session: it is closed"):
                use()
        snapshot.free()
        snapshot.free()

    def test_a_freed_snapshot(self):
        snapshot = self.epoch.begin(1)
        snapshot.free()
        with self.assertRaisesRegex(ckptd.FailedPrecondition, "step 1: the snapshot was freed"):
            snapshot.write("w", floats(1))

    def test_units_that_differ_from_those_of_the_run(self):
        save(self.epoch, 1, {"w": floats(1)})
        with self.assertRaisesRegex(ckptd.FailedPrecondition, "w"):
            self.session().register([unit("w", 2000)])

    def test_unknown_verbs_and_runs(self):
        for kind, verb, arguments in ((ckptd.InvalidArgument, "explode", {}),
                                      (ckptd.NotFound, "log", {"target": "nobody"}),
                                      (ckptd.InvalidArgument, "log", {"target": self.tiny + "@@"})):
            with self.subTest(verb), self.assertRaises(kind):
                self.owner.query(verb, **arguments)
        with self.assertRaises(ckptd.NotFound):
            self.session("nobody", control=True).restore().read({"w": bytearray(4)})


class Alarms(DaemonTest):
    def test_snapshot_with_nan_is_refused_or_reported(self):
        for alarms in ("warn", "refuse"):
            with self.subTest(alarms):
                session, epoch = self.joined(units=[unit("w")], run=alarms, alarms=alarms)
                if alarms == "refuse":
                    with self.assertRaisesRegex(ckptd.Aborted, "NaN"):
                        save(epoch, 1, {"w": floats(float("nan"))})
                else:
                    self.assertRegex(save(epoch, 1, {"w": floats(float("nan"))}).alarms, "NaN")
                session.close()


class Full(DaemonTest):
    def test_state_larger_than_arena_is_refused_or_streamed(self):
        large = (support.ARENA + support.SLAB) // 4
        session, epoch = self.joined(units=[unit("w", large)])
        with self.assertRaises(ckptd.Error):
            epoch.begin(1, skip_if_full=True)
        with epoch.begin(2, streams=True) as snapshot:
            snapshot.write("w", floats(2, large))
        snapshot.wait(timeout=support.TIMEOUT)
        into = floats(0, large)
        session.restore(2, exact=True).read({"w": into})
        self.assertEqual(into, floats(2, large))


if __name__ == "__main__":
    unittest.main()
