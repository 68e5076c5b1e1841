"""Saver(grow=True): new tensors join the run, over restarts, forks and ranks."""

import unittest
from unittest import mock

import pytorch_support as support
from pytorch_support import StoreTest, ckptd, filled, mesh, ranks, same, saver, torch, zeroed
from torch.distributed.tensor import Shard, distribute_tensor

from ckptd import layout, planning, rules

WIDTH = 8


def state_of(step, adapter=0, extra=0):
    """A model; with an adapter of this rank, and with so many further tensors."""
    state = {"model": {"w": filled((4, WIDTH), step)}, "step": step}
    if adapter:
        state["adapter"] = {"a": filled((adapter, WIDTH), step + 1),
                            "b": filled((4, adapter), step + 2)}
    for number in range(extra):
        state[f"extra.{number}"] = filled((number + 1,), step + 3 + number)
    return state


def same_tensors(one, other):
    for key, value in one.items():
        if isinstance(value, dict):
            same_tensors(value, other[key])
        elif isinstance(value, torch.Tensor):
            assert same(value, other[key]), key


def grow_twice(rank, run):
    """Without adapter, with it, and with two further tensors."""
    with saver(run, grow=True) as tiny:
        for step, state in ((1, state_of(1)), (2, state_of(2, 2)), (3, state_of(3, 2, 2))):
            tiny.save(step, state).durable(support.TIMEOUT)


def load(rank, run, step, adapter, extra):
    with saver(run, grow=True) as tiny:
        state = zeroed(state_of(step, adapter, extra))
        tiny.restore(state, step=step, run=run)  # read alone: the run keeps its lineage
        same_tensors(state_of(step, adapter, extra), state)


def continued(rank, run, step, adapter, extra):
    """Resumes the newest view with this state, and saves the next step."""
    with saver(run, grow=True) as tiny:
        tiny.restore(zeroed(state_of(step, adapter, extra)))
        tiny.save(step + 1, state_of(step + 1, adapter, extra)).durable(support.TIMEOUT)


def fork(rank, run, step, adapter, more):
    """Resumes an older step and grows otherwise."""
    with saver(run, grow=True) as tiny:
        state = state_of(step)
        tiny.restore(zeroed(state), step=step)
        state = state_of(step + 1, adapter)
        state["fork"] = filled((more,), 9)
        tiny.save(step + 1, state).durable(support.TIMEOUT)


def one_grows(rank, run):
    with saver(run, grow=True) as tiny:
        tiny.save(1, state_of(1)).durable(support.TIMEOUT)
        state = state_of(2)
        if rank == 1:
            state["mine"] = filled((3,), rank)
        tiny.save(2, state).durable(support.TIMEOUT)
        return sorted(tiny.session.query("schema", target=run)["units"], key=lambda u: u["id"])


def sharded_growth(rank, run):
    on = mesh(2)
    with saver(run, grow=True) as tiny:
        for step in (1, 2):
            state = {"w": filled((WIDTH,), step)}
            if step == 2:
                state["lora"] = distribute_tensor(filled((4, WIDTH), 5), on, [Shard(0)],
                                                  src_data_rank=None)
            tiny.save(step, state).durable(support.TIMEOUT)
        back = {"w": torch.zeros(WIDTH),
                "lora": distribute_tensor(torch.zeros(4, WIDTH), on, [Shard(0)],
                                          src_data_rank=None)}
        tiny.restore(back)
        assert same(back["lora"].full_tensor(), filled((4, WIDTH), 5))


def refusal(call):
    try:
        call()
    except ckptd.Error as error:
        return str(error)
    return ""


def refused_changes(rank, run):
    with saver(run, grow=True) as tiny:
        tiny.save(1, state_of(1, 2)).durable(support.TIMEOUT)
        changed = state_of(2, 2, 1)
        changed["model"]["w"] = torch.zeros(2, 2)
        missing = state_of(2, 2, 1)
        del missing["adapter"]["a"]
        said = [refusal(lambda: tiny.save(2, changed)), refusal(lambda: tiny.save(2, missing))]
        tiny.save(3, state_of(3, 2)).durable(support.TIMEOUT)
        return said


def refused_plan(rank, run):
    """A growth whose plan is refused leaves the saver as it was."""
    with saver(run, grow=True) as tiny:
        tiny.save(1, state_of(1)).durable(support.TIMEOUT)
        with mock.patch.object(planning, "FRAGMENTS_MAX", 2):
            said = refusal(lambda: tiny.save(2, state_of(2, 2)))
        for step, adapter in ((3, 0), (4, 2)):
            tiny.save(step, state_of(step, adapter)).durable(support.TIMEOUT)
            found = zeroed(state_of(step, adapter))
            tiny.restore(found)
            same_tensors(state_of(step, adapter), found)
        return said


def refused_without(rank, run):
    with saver(run) as tiny:
        tiny.save(1, state_of(1)).durable(support.TIMEOUT)
        return refusal(lambda: tiny.save(2, state_of(2, 2)))


def slice_of(index):
    return {"name": rules.slice_name("layers.0.moe.experts.w1", index), "dtype": "F32",
            "shape": [1], "offset": 4 * index}


class Growth(StoreTest):
    def test_new_tensors_join_the_run(self):
        ranks(2, grow_twice, self.tiny)
        for step, adapter, extra in ((1, 0, 0), (2, 2, 0), (3, 2, 2)):
            ranks(1, load, self.tiny, step, adapter, extra)

    def test_restart_goes_on_with_grown_state(self):
        ranks(2, grow_twice, self.tiny)
        ranks(1, continued, self.tiny, 3, 2, 2)
        ranks(1, load, self.tiny, 4, 2, 2)

    def test_restart_may_grow_further(self):
        ranks(1, grow_twice, self.tiny)
        ranks(1, continued, self.tiny, 3, 2, 2)

    def test_fork_has_its_own_growth(self):
        ranks(1, grow_twice, self.tiny)
        ranks(1, fork, self.tiny, 1, 2, 5)
        with self.assertRaises(Exception) as raised:
            ranks(1, fork, self.tiny, 1, 3, 5)
        self.assertIn("F32 [3, 8]", str(raised.exception))
        self.assertIn("[2, 8]", str(raised.exception))

    def test_tensor_of_one_rank_grows_all(self):
        for units in ranks(2, one_grows, self.tiny):
            self.assertEqual([unit.get("grown", False) for unit in units].count(True), 1)

    def test_sharded_tensor_grows(self):
        ranks(2, sharded_growth, self.tiny)

    def test_tensors_never_change(self):
        changed, missing = ranks(1, refused_changes, self.tiny)[0]
        self.assertIn("tensor model.w: it was F32 [4, 8] and is F32 [2, 2]", changed)
        self.assertIn("tensor adapter.a: it is missing", missing)

    def test_refused_plan_leaves_the_saver_as_it_was(self):
        self.assertIn("tensors into", ranks(1, refused_plan, self.tiny)[0])

    def test_open_reader_follows_the_growth(self):
        with saver(self.tiny, grow=True) as tiny:
            tiny.save(1, state_of(1)).durable(support.TIMEOUT)
            with ckptd.Session(self.tiny) as reader:
                before = reader.units()
                tiny.save(2, state_of(2, 2)).durable(support.TIMEOUT)
                name = (set(tiny.session.units()) - set(before)).pop()
                self.assertEqual(reader.unit(name), tiny.session.unit(name))

    def test_view_before_the_growth_has_whole_stacked_tensors(self):
        grown = {"unit": "more", "id": 1, "bytes": 4, "layer": None, "expert": None, "part": None,
                 "grown": True, "tensors": [slice_of(2)]}
        base = {**grown, "unit": "base", "id": 0, "bytes": 8, "grown": False,
                "tensors": [slice_of(0), slice_of(1)]}
        found = layout.of_schema({"units": [base, grown]}, {"base"})
        self.assertEqual([kind.shape for kind in found.kinds.values()], [(2, 1)])
        self.assertEqual(found.unit_names(), ["base", "more"])

    def test_without_the_option_new_tensors_are_refused(self):
        self.assertIn("it is new", ranks(1, refused_without, self.tiny)[0])

    def test_option_excludes_partial_experts(self):
        with self.assertRaisesRegex(ckptd.InvalidArgument, "option grow"):
            ckptd.Saver(self.tiny, grow=True, experts=1)


if __name__ == "__main__":
    unittest.main()
