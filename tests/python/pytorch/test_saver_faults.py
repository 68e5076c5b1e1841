"""Saver when the daemon is absent, killed or stopped; memory; what it refuses; partial saves."""

import signal
import unittest

import pytorch_support as support
from pytorch_support import StoreTest, ckptd, filled, saver, torch, zeroed
from support import DaemonTest

LAYER = "layers.0.moe.experts.w1"


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
        crossed = {"left": 2}
        write = ckptd.Snapshot.write_at

        def killing(snapshot, *arguments):
            write(snapshot, *arguments)
            crossed["left"] -= 1
            if crossed["left"] == 0:
                self.daemon.stop(signal.SIGKILL)
        ckptd.Snapshot.write_at = killing
        try:
            pending = tiny.save(2, state)
        finally:
            ckptd.Snapshot.write_at = write
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

    def test_stopped_during_a_save(self):
        state = {"w": filled((1000,), 1)}
        tiny = self.saver()
        tiny.save(1, state).durable(support.TIMEOUT)
        self.daemon._process.send_signal(signal.SIGSTOP)
        pending = tiny.save(2, state)
        with self.assertRaisesRegex(ckptd.Unavailable, "has not answered for"):
            pending.durable(support.TIMEOUT)
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


class Memory(StoreTest):
    def test_a_state_of_four_arenas_streams(self):
        state = {f"w{number}": filled((4 << 20,), number) for number in range(8)}  # 128 MiB
        found = zeroed(state)
        with saver(self.tiny) as tiny:
            tiny.save(1, state).durable(support.TIMEOUT)
            tiny.restore(found, exact=True)
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


class Refusals(StoreTest):
    def refused(self, state, sentence, kind=ckptd.InvalidArgument, **options):
        with saver(self.tiny, **options) as tiny, self.assertRaisesRegex(kind, sentence):
            tiny.save(1, state)

    def test_tensors_without_bytes(self):
        self.refused({"w": torch.empty(3, device="meta")}, "tensor w on rank 0: .*meta device")
        self.refused({"w": torch.eye(3).to_sparse()}, "tensor w on rank 0: layout .*sparse")
        self.refused({"w": torch.ones(2, dtype=torch.complex128)}, "tensor w on rank 0: dtype")
        self.refused({"w": torch.ones(2, dtype=torch.complex64).conj()}, "tensor w .*conjugated")
        self.refused({"w": Wrapper(torch.ones(2))}, "tensor w .*no storage of its own")

    def test_colliding_names_and_odd_keys(self):
        self.refused({"w": torch.ones(1), "_orig_mod.w": torch.ones(1)}, "have this name on rank 0")
        self.refused({(1, 2): torch.ones(1)}, "use strings or whole numbers")
        self.refused([torch.ones(1)], "the state is a list")

    def test_plain_values_that_are_no_json(self):
        self.refused({"w": torch.ones(1), "odd": object()}, r'value odd: .*allow_pickle=\["odd"\]')
        self.refused({"w": torch.ones(1), "text": "x" * (1 << 20)}, "value text: .*values_bytes")

    def test_selectors_that_need_counts_of_all_ranks(self):
        with self.assertRaisesRegex(ckptd.InvalidArgument, "selector: risk-aware .*use rotating"):
            saver(self.tiny, experts=1, selector="risk-aware")
        self.refused({"w": torch.ones(1)}, "option experts: 2, but no tensor", experts=2)

    def test_saving_into_a_run_with_commits(self):
        state = {"w": torch.ones(4)}
        with saver(self.tiny) as tiny:
            tiny.save(1, state).durable(support.TIMEOUT)
        self.refused(state, "call restore first|restore first, or save into a new run",
                     ckptd.FailedPrecondition)
        self.refused({"w": torch.ones(5)}, r"tensor w is F32 \[5\], in the run F32 \[4\]",
                     ckptd.FailedPrecondition)

    def test_names_that_are_missing_or_unexpected(self):
        state = {"w": torch.ones(4), "b": torch.ones(2), "lr": 1}
        with saver(self.tiny) as tiny:
            tiny.save(1, state).durable(support.TIMEOUT)
        for other, sentence in (
                ({"w": torch.zeros(4)}, "also has b, lr, which no rank's state has"),
                ({**state, "new": torch.ones(1)}, "does not have new, which the state of rank 0"),
                ({**state, "epoch": 0}, "does not have epoch"),
                ({**state, "w": torch.ones(3)}, r"tensor w: F32 \[3\] on rank 0, and F32 \[4\]")):
            with saver(self.tiny) as tiny, self.assertRaisesRegex(
                    ckptd.InvalidArgument, sentence):
                tiny.restore(other)
        found = {"w": torch.zeros(4), "new": torch.zeros(1)}
        with saver(self.tiny) as tiny:
            tiny.restore(found, allow=["b", "lr", "new"])
        self.assertEqual((found["w"].sum(), found["new"].sum()), (4, 0))

    def test_a_tie_that_ends_is_not_dropped(self):
        tied = torch.ones(4)
        with saver(self.tiny) as tiny:
            tiny.save(1, {"a": tied, "b": tied}).durable(support.TIMEOUT)
            with self.assertRaisesRegex(ckptd.InvalidArgument, "b: it is no longer tied to a"):
                tiny.save(2, {"a": tied, "b": tied.clone()})
        apart = {"a": torch.zeros(4), "b": torch.zeros(4)}
        with saver(self.tiny) as tiny:
            tiny.restore(apart)
        self.assertEqual(float(apart["b"].sum()), 4)


class Wrapper(torch.Tensor):
    """A subclass without storage, as quantizers make them."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        raise NotImplementedError(function)


class Partial(StoreTest):
    def test_experts_take_turns_and_counts_survive(self):
        state = {LAYER: filled((4, 8, 8), 1), "w": filled((8,), 2)}
        with saver(self.tiny, experts=1, alarms="off") as tiny:
            for step in (1, 2, 3):
                tiny.count(0, [1, 2, 3, step])
                tiny.stepped()
                tiny.count(0, [100, 100, 100, 100])
                tiny.discard()
                state[LAYER] += 1
                state["w"] += 1
                tiny.save(step, state).durable(support.TIMEOUT)
            log = tiny.session.query("log", target=self.tiny)
            self.assertEqual([commit["experts"] for commit in log], [1, 1, 4])
            (layer,) = tiny.session.query("experts", target=self.tiny)["layers"]
            self.assertEqual([one["staleness"] for one in layer["experts"]], [2, 1, 0, 2])
            self.assertEqual([one["lost_tokens"] for one in layer["experts"]], [2, 2, 0, 5])
        found = zeroed(state)
        with saver(self.tiny, experts=1) as tiny:
            restored = tiny.restore(found)
            self.assertEqual(tiny._tokens.total, {0: [3, 6, 9, 6]})
            self.assertEqual(tiny._turn, 3)
            versions = [restored.units[f"layers.0.moe.experts.{one}"].version.step
                        for one in range(4)]
            self.assertEqual(versions, [1, 2, 3, 1])
            self.assertEqual(tiny._tokens.lost, {0: [2, 2, 0, 5]})
            tiny.save(4, found).durable(support.TIMEOUT)  # expert 3 in turn
        with saver(self.tiny, experts=1) as tiny:
            tiny.restore(found)
            self.assertEqual(tiny._tokens.lost, {0: [2, 2, 0, 5]}, "no loss counts twice")
            self.assertEqual(tiny.plt, 9 / 24)
            self.assertEqual(tiny.session.query("log", target=self.tiny)[0]["plt"], 9 / 24)
        self.assertTrue(torch.equal(found["w"], state["w"]))
        self.assertTrue(torch.equal(found[LAYER][2], state[LAYER][2]))

    def test_another_run_is_a_starting_point(self):
        state = {"w": filled((8,), 2), "step": 5}
        with saver(self.tiny) as tiny:
            self.assertIsNone(tiny.restore(zeroed(state), step="continue").view)
            tiny.save(5, state).durable(support.TIMEOUT)
            tiny.session.query("tag", target=f"{self.tiny}@5", tag="good")
        found = zeroed(state)
        with saver(self.tiny + "-2") as tiny:
            self.assertEqual(tiny.restore(found, "good", run=self.tiny).step, 5)
            self.assertEqual(found["step"], 5)
            tiny.save(1, found).durable(support.TIMEOUT)
        with saver(self.tiny) as tiny:
            tiny.restore(found, "good")
            tiny.save(6, found).durable(support.TIMEOUT)


if __name__ == "__main__":
    unittest.main()
