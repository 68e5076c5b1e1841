"""States that Saver refuses, and saves of some experts at a time."""

import unittest

import pytorch_support as support
from pytorch_support import StoreTest, ckptd, filled, mesh, ranks, saver, torch, zeroed
from torch.distributed import tensor
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

LAYER = "layers.0.moe.experts.w1"


class Refusals(StoreTest):
    def refused(self, state, sentence, kind=ckptd.InvalidArgument, **options):
        before = commits(self.tiny)
        with saver(self.tiny, **options) as tiny, self.assertRaisesRegex(kind, sentence):
            tiny.save(1, state)
        self.assertEqual(commits(self.tiny), before)

    def test_tensors_without_bytes(self):
        self.refused({"w": torch.empty(3, device="meta")}, "tensor w on rank 0: .*meta device")
        self.refused({"w": torch.eye(3).to_sparse()}, "tensor w on rank 0: layout .*sparse")
        self.refused({"w": torch.ones(2, dtype=torch.complex128)}, "tensor w on rank 0: dtype")
        self.refused({"w": torch.ones(2, dtype=torch.complex64).conj()}, "tensor w .*conjugated")
        self.refused({"w": Wrapper(torch.ones(2))}, "tensor w .*no storage of its own")

    def test_partial_sums(self):
        for said in ranks(2, partial_sum, self.tiny):
            self.assertRegex(said, "tensor w on rank 0: .* is a partial sum")
        self.assertEqual(commits(self.tiny), [])

    def test_colliding_names_and_odd_keys(self):
        self.refused({"w": torch.ones(1), "_orig_mod.w": torch.ones(1)}, "have this name on rank 0")
        self.refused({(1, 2): torch.ones(1)}, "use strings or whole numbers")
        self.refused([torch.ones(1)], "the state is a list")

    def test_plain_values_that_are_no_json(self):
        self.refused({"w": torch.ones(1), "odd": object()}, r'value odd: .*allow_pickle=\["odd"\]')
        self.refused({"w": torch.ones(1), "text": "x" * (65 << 20)},
                     "value text: .*make it a tensor")

    def test_selectors_that_cannot_choose(self):
        with self.assertRaisesRegex(ckptd.InvalidArgument, "selector: 'age-aware'; choose one of"):
            saver(self.tiny, experts=1, selector="age-aware")
        with self.assertRaisesRegex(ckptd.InvalidArgument, "risk-aware .*experts=K"):
            saver(self.tiny, selector="risk-aware")
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


def commits(run):
    """Steps of a run's commits; none if there is no run."""
    with ckptd.Session(run, control=True) as asker:
        try:
            return [commit["step"] for commit in asker.query("log", target=run)]
        except ckptd.NotFound:
            return []


def partial_sum(rank, run):
    """A save of gradients that are not summed yet; what it raises."""
    state = {"w": DTensor.from_local(torch.ones(3), mesh(2), [tensor.Partial()])}
    with saver(run) as tiny:
        try:
            tiny.save(1, state)
        except ckptd.InvalidArgument as refused:
            return str(refused)
    return "nothing"


class Wrapper(torch.Tensor):
    """A subclass without storage, as quantizers make them."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        raise NotImplementedError(function)


def versions(tiny):
    """Steps of the versions of layer 0's experts in the newest view."""
    (layer,) = tiny.session.query("experts", target=tiny.session.description.run)["layers"]
    return [one["version_step"] for one in layer["experts"]]


def expert_parallel(step):
    return {LAYER: distribute_tensor(filled((4, 8, 8), step), mesh(2), [Shard(0)],
                                     src_data_rank=None)}


def weighed(rank, run):
    """Saves of one expert each. After a restore, experts have the ages of the view."""
    def save(tiny, step, counts):
        tiny.count(0, counts)
        tiny.stepped()
        tiny.save(step, expert_parallel(step)).durable(support.TIMEOUT)
        return versions(tiny)
    options = {"experts": 1, "selector": "risk-aware", "alarms": "off"}
    with saver(run, **options) as tiny:
        assert save(tiny, 1, [9, 9, 9, 9]) == [1, 1, 1, 1]
        assert save(tiny, 2, [8, 1, 2, 3]) == [2, 1, 1, 1]
        assert save(tiny, 3, [1, 1, 5, 3]) == [2, 1, 3, 1]
    with saver(run, **options) as tiny:
        tiny.restore(expert_parallel(0))
        assert tiny.plt > 0
        # Ages 2, 3, 1, 3: 8 * sqrt(1) < 5 * sqrt(3).
        assert save(tiny, 4, [0, 0, 8, 5]) == [2, 1, 3, 4]
        assert save(tiny, 5, [0, 9, 0, 0]) == [2, 5, 3, 4]
        return save(tiny, 6, [0, 0, 0, 0])


def counted_apart(rank, run, silently):
    """The failure that each rank is told if it counts its own tokens alone."""
    with saver(run, experts=1, selector="load-aware", alarms="off") as tiny:
        tiny.save(1, expert_parallel(1)).durable(support.TIMEOUT)
        tiny.count(0, [5, 1, 1, 1] if rank else [1, 1, 1, 5])
        tiny.stepped()
        if silently:  # ckptd sees the choice alone
            tiny._tokens.flat = lambda units: []
        try:
            tiny.save(2, expert_parallel(2)).durable(support.TIMEOUT)
        except ckptd.Error as failure:
            return str(failure)
        raise AssertionError("ranks saved different experts")


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
            self.assertEqual([one["staleness"] for one in layer["experts"]], [1, 0, 2, 2])
            self.assertEqual([one["lost_tokens"] for one in layer["experts"]], [1, 0, 6, 5])
        found = zeroed(state)
        with saver(self.tiny, experts=1) as tiny:
            restored = tiny.restore(found)
            self.assertEqual(tiny._tokens.total, {0: [3, 6, 9, 6]})
            self.assertEqual(tiny._turn, 3)
            versions = [restored.units[f"layers.0.moe.experts.{one}"].version.step
                        for one in range(4)]
            self.assertEqual(versions, [2, 3, 1, 1])
            self.assertEqual(tiny._tokens.lost, {0: [1, 0, 6, 5]})
            tiny.save(4, found).durable(support.TIMEOUT)  # expert 2 in turn
        with saver(self.tiny, experts=1) as tiny:
            tiny.restore(found)
            self.assertEqual(tiny._tokens.lost, {0: [1, 0, 6, 5]}, "no loss counts twice")
            self.assertEqual(tiny.plt, 12 / 24)
            self.assertEqual(tiny.session.query("log", target=self.tiny)[0]["plt"], 12 / 24)
        self.assertTrue(torch.equal(found["w"], state["w"]))
        self.assertTrue(torch.equal(found[LAYER][1], state[LAYER][1]))

    def test_a_selector_without_counts_is_refused(self):
        state = {LAYER: filled((4, 8, 8), 1)}
        with saver(self.tiny, experts=1, selector="load-aware") as tiny:
            tiny.save(1, state).durable(support.TIMEOUT)  # full: no choice
            with self.assertRaisesRegex(ckptd.InvalidArgument, "load-aware: layer 0 has counts of "
                                        r"0 experts, and needs 4; call count\("):
                tiny.save(2, state)
            tiny.count(0, [1, 5, 2, 3])
            tiny.stepped()
            tiny.save(3, state).durable(support.TIMEOUT)
            self.assertEqual(versions(tiny), [1, 3, 1, 1])

    def test_a_counted_expert_that_no_rank_has_is_refused(self):
        state = {f"layers.0.mlp.experts.{expert}.up_proj.weight": filled((8,), expert)
                 for expert in (0, 1, 3)}
        with saver(self.tiny, experts=1) as tiny:
            tiny.save(1, state).durable(support.TIMEOUT)
            tiny.count(0, [1, 5, 2, 3])
            tiny.stepped()
            with self.assertRaisesRegex(ckptd.InvalidArgument, "layer 0 expert 2: 2 tokens"):
                tiny.save(2, state)
            log = tiny.session.query("log", target=self.tiny)
            self.assertEqual([commit["step"] for commit in log], [1])

    def test_ranks_choose_same_experts_after_restore(self):
        self.assertEqual(ranks(2, weighed, self.tiny), [[2, 5, 6, 4]] * 2)

    def test_ranks_with_different_counts_are_refused(self):
        told = ranks(2, counted_apart, self.tiny, False)
        self.assertRegex(" ".join(told), "rank [01] gives other token counts of experts than")

    def test_ranks_with_different_choices_are_refused(self):
        told = ranks(2, counted_apart, self.tiny, True)
        self.assertRegex(" ".join(told), "not agree to the plan of rank [01]: the plans differ")

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
