"""Tied tensors of Saver: the name that is stored, in new runs, in those that exist and grow."""

import unittest

import pytorch_support as support
from pytorch_support import StoreTest, ckptd, filled, mesh, ranks, same, saver, torch
from torch.distributed.tensor import Shard, distribute_tensor

from ckptd import layout, ties

FIRST, SECOND = "model.embed_tokens.weight", "lm_head.weight"  # not in the order of the alphabet


def model(step, names=(FIRST, SECOND)):
    tied = filled((4, 8), step)
    return {**{name: tied for name in names}, "w": filled((3,), step + 1)}


def stored(tiny):
    """Names of the run's tensors, but those of the values."""
    return sorted(layout.of_schema(tiny.session.schema()).kinds)


def saved(run, step, names=(FIRST, SECOND), **options):
    with saver(run, **options) as tiny:
        tiny.save(step, model(step, names)).durable(support.TIMEOUT)
        return stored(tiny)


def continued(run, step, names, **options):
    """Restores the newest step, and saves the next one."""
    with saver(run, **options) as tiny:
        state = model(0, names)
        tiny.restore(state)
        for name in names:
            assert same(state[name], model(step)[FIRST]), name
        tiny.save(step + 1, model(step + 1, names)).durable(support.TIMEOUT)
        return stored(tiny)


def sharded(rank, run, first, names):
    """Two steps. Rank 1 has the names in the other order; a third rank has no elements."""
    on = mesh(torch.distributed.get_world_size())

    def state_of(step):
        tied = distribute_tensor(filled((2, 8), step), on, [Shard(0)], src_data_rank=None)
        return {name: tied for name in (reversed(names) if rank == 1 else names)}
    with saver(run) as tiny:
        if first > 1:
            state = state_of(0)
            tiny.restore(state)
            assert same(state[FIRST].full_tensor(), filled((2, 8), first - 1))
        for step in (first, first + 1):
            tiny.save(step, state_of(step)).durable(support.TIMEOUT)
        return stored(tiny)


def alone(rank, run):
    with saver(run) as tiny:
        tiny.save(1, {SECOND: filled((2, 8), 1)}).durable(support.TIMEOUT)
        return stored(tiny)


def differing(rank, run, pattern):
    """Tied tensors whose bytes differ between ranks, too large to be saved by one rank alone."""
    tied = torch.full((1 << 20,), float(rank))
    with saver(run, lowest_rank=[pattern]) as tiny:
        tiny.save(1, {FIRST: tied, SECOND: tied}).durable(support.TIMEOUT)
        restored = torch.full((1 << 20,), 7.0)
        tiny.restore({FIRST: restored, SECOND: restored})
        return stored(tiny), restored.unique().tolist()


def partly_tied(rank, run, shard, first):
    """Rank 0 has two names of the tensor, rank 1 one of them."""
    on = mesh(2)

    def state_of(step):
        tied = filled((4, 8), step)
        if shard:
            tied = distribute_tensor(tied, on, [Shard(0)], src_data_rank=None)
        return {FIRST: tied, SECOND: tied} if rank == 0 else {SECOND: tied}
    with saver(run) as tiny:
        if first > 1:
            tiny.restore(state_of(0))
        for step in (first, first + 1):
            tiny.save(step, state_of(step)).durable(support.TIMEOUT)
        return stored(tiny)


def alarms_of(run, constant, names, first):
    with saver(run, constant=[constant]) as tiny:
        if first > 1:
            tiny.restore(model(0, names))
        for step in (first, first + 1):
            state = {**model(1, names), "w": filled((3,), step)}
            pending = tiny.save(step, state)
            pending.durable(support.TIMEOUT)
        return pending.alarms


class Ties(StoreTest):
    def test_first_name_in_the_state_is_stored(self):
        self.assertEqual(saved(self.tiny, 1), [FIRST, "w"])
        nested = self.tiny + "-nested"
        with saver(nested) as tiny:
            tiny.save(1, {"model": model(1), "ema": {"a": model(1)}}).durable(support.TIMEOUT)
            self.assertIn("model." + FIRST, stored(tiny))

    def test_an_existing_run_keeps_its_name(self):
        for names in ((SECOND, FIRST), (FIRST, SECOND, "third")):
            with self.subTest(names=names):
                run = f"{self.tiny}-{len(names)}"
                before = saved(run, 1, names)
                self.assertEqual(continued(run, 1, (FIRST, SECOND)), before)
                self.assertEqual(continued(run, 2, (SECOND, FIRST)), before)

    def test_run_with_one_of_two_names_is_continued(self):
        self.assertEqual(saved(self.tiny, 1, (SECOND,)), [SECOND, "w"])
        self.assertEqual(continued(self.tiny, 1, (FIRST, SECOND)), [SECOND, "w"])

    def test_a_tie_may_grow(self):
        with saver(self.tiny, grow=True) as tiny:
            tiny.save(1, model(1, (FIRST,))).durable(support.TIMEOUT)
            tiny.save(2, {**model(2), "new": filled((2,), 1)}).durable(support.TIMEOUT)
            tiny.save(3, {**model(3, ("a", FIRST)), "new": filled((2,), 1)}).durable(
                support.TIMEOUT)
            self.assertEqual(stored(tiny), [FIRST, "new", "w"])

    def test_ranks_agree_whatever_their_order(self):
        for size in (2, 3):
            with self.subTest(ranks=size):
                run = f"{self.tiny}-{size}"
                before = ranks(size, sharded, run, 1, (FIRST, SECOND))[0]
                self.assertEqual(len(before), 1)
                self.assertEqual(ranks(size, sharded, run, 3, (FIRST, SECOND))[0], before)

    def test_ranks_without_elements_take_the_only_name(self):
        saved_alone = ranks(1, alone, self.tiny)[0]
        self.assertEqual(saved_alone, [SECOND])
        self.assertEqual(ranks(3, sharded, self.tiny, 2, (FIRST, SECOND))[0], saved_alone)

    def test_lowest_rank_counts_by_any_name(self):
        for pattern in ("model.*", "lm_head.*"):
            with self.subTest(pattern=pattern):
                found = ranks(2, differing, f"{self.tiny}-{pattern[0]}", pattern)
                self.assertEqual(found, [([FIRST], [0.0])] * 2)

    def test_a_name_of_all_ranks_is_stored(self):
        for shard in (False, True):
            with self.subTest(shard=shard):
                run = f"{self.tiny}-{shard}"
                for first in (1, 3):
                    self.assertEqual(ranks(2, partly_tied, run, shard, first)[0], [SECOND])

    def test_constant_counts_by_any_name(self):
        for number, names in enumerate(((FIRST, SECOND), (SECOND, FIRST))):
            for pattern in ("model.*", "lm_head.*"):
                with self.subTest(names=names, pattern=pattern):
                    run = f"{self.tiny}-{number}{pattern[0]}"
                    self.assertFalse(alarms_of(run, pattern, names, 1))
                    self.assertFalse(alarms_of(run, pattern, (FIRST, SECOND), 3))
        self.assertTrue(alarms_of(self.tiny, "other", (FIRST, SECOND), 1))

    def test_a_tie_of_two_stored_tensors_is_refused(self):
        apart = {**model(1, (FIRST,)), SECOND: filled((4, 8), 9)}
        with saver(self.tiny) as tiny:
            tiny.save(1, apart).durable(support.TIMEOUT)
        with saver(self.tiny) as tiny, self.assertRaisesRegex(
                ckptd.InvalidArgument, "different bytes"):
            tiny.restore(model(2))


class Rules(unittest.TestCase):
    def test_one_name_of_each_tie_is_first(self):
        aliases = {"b": "a", "c": "a", "y": "x"}
        self.assertEqual(ties.first_names(aliases, ["y", "c", "free", "a", "x", "b"]), ("y", "c"))
        self.assertEqual(ties.first_names({}, ["a"]), ())

    def test_names_of_all_holders_are_common(self):
        aliases = {"b": "a", "c": "a", "y": "x"}
        holders = [({"a", "x"}, aliases), ({"a"}, {"c": "a"}), ({"free"}, {})]
        self.assertEqual(ties.common(aliases, holders), {"a": {"a", "c"}, "x": {"x", "y"}})

    def test_renaming_keeps_one_name_stored(self):
        aliases, table = {"b": "a", "c": "a", "y": "x"}, {"a": 1, "x": 2, "free": 3}
        chosen = ties.choose(aliases, {"c", "x", "free"})
        self.assertEqual(chosen, {"a": "c"})
        ties.rename(aliases, [table], chosen)
        self.assertEqual(aliases, {"a": "c", "b": "c", "y": "x"})
        self.assertEqual(table, {"c": 1, "x": 2, "free": 3})
        self.assertEqual(ties.choose(aliases, {"c", "x", "free"}), {})
        self.assertEqual(ties.choose(aliases, {"b", "y"}, {"c": {"a"}}), {"x": "y"})
        ties.rename(aliases, [table], {"c": "b", "x": "unknown"})
        self.assertEqual((aliases, table["b"]), ({"a": "b", "c": "b", "y": "x"}, 1))


if __name__ == "__main__":
    unittest.main()
