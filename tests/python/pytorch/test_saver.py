"""Saver with real process groups: round trips over meshes and world sizes, promises, refusals."""

import contextlib
import threading
import unittest
from unittest import mock

import pytorch_support as support
from pytorch_support import StoreTest, ckptd, dist, filled, mesh, ranks, same, saver, torch, zeroed
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from ckptd import content

EXPERTS, WIDTH = 6, 8


def sharded(full, on, *placements):
    return distribute_tensor(full, on, placements, src_data_rank=None)


def moe(on, placements, seed=0):
    """A small state: a router, stacked experts [E, F, D] and their moments, plain values."""
    weights = "layers.0.moe.experts.w1"
    state = {"model": {"layers.0.moe.router.gate": filled((EXPERTS, WIDTH), seed),
                       weights: sharded(filled((EXPERTS, 4, WIDTH), seed + 1), on, *placements)},
             "optim": {"state": {}}, "step": seed}
    for at, name in enumerate(("exp_avg", "exp_avg_sq")):
        state["optim"]["state"][f"{weights}.{name}"] = sharded(
            filled((EXPERTS, 4, WIDTH), seed + 2 + at), on, *placements)
    return state


def same_state(one, other):
    for key, value in one.items():
        theirs = other[key]
        if isinstance(value, dict):
            same_state(value, theirs)
        elif isinstance(value, DTensor):
            assert same(value.full_tensor(), theirs.full_tensor()), key
        elif isinstance(value, torch.Tensor):
            assert same(value, theirs), key
        else:
            assert value == theirs, (key, value, theirs)


def save_moe(rank, run, shape, placements, step):
    with saver(run) as tiny:
        if step > 1:
            tiny.restore(zeroed(moe(mesh(*shape), placements)))
        tiny.save(step, moe(mesh(*shape), placements, step),
                  per_rank={"rank": rank}).durable(support.TIMEOUT)


def load_moe(rank, run, shape, placements, step):
    on = mesh(*shape)
    state = zeroed(moe(on, placements))
    with saver(run) as tiny:
        restored = tiny.restore(state)
        same_state(moe(on, placements, step), state)
        return restored.step, restored.notes, restored.per_rank, restored.saved_per_rank


def save_large_values(rank, run):
    with saver(run) as tiny:
        state = {"w": torch.ones(4), "text": "small"}
        for step, size in ((1, 10), (2, 3 << 20)):
            state["w"] += 1
            tiny.save(step, state, per_rank={"loader": b"x" * (size + rank)}).durable(
                support.TIMEOUT)


def load_large_values(rank, run):
    with saver(run) as tiny:
        state = {"w": torch.zeros(4), "text": ""}
        restored = tiny.restore(state)
        assert state["text"] == "small" and state["w"][0] == 3, state
        return len(restored.per_rank["loader"])


def load_all_large_values(rank, run):
    with saver(run) as tiny:
        state = {"w": torch.zeros(4), "text": ""}
        restored = tiny.restore(state)
        saved = {one: len(objects["loader"]) for one, objects in restored.saved_per_rank.items()}
        return saved, state["text"]


class RoundTrips(StoreTest):
    def test_experts_over_two_three_and_one_ranks(self):
        ranks(2, save_moe, self.tiny, (2,), [Shard(0)], 1)
        found = ranks(3, load_moe, self.tiny, (3,), [Shard(0)], 1)
        self.assertEqual(found[0][0], 1)
        ranks(3, save_moe, self.tiny, (3,), [Shard(0)], 2)
        ((step, notes, mine, saved),) = ranks(1, load_moe, self.tiny, (1,), [Replicate()], 2)
        self.assertEqual((step, mine), (2, {}))
        self.assertEqual(saved, {0: {"rank": 0}, 1: {"rank": 1}, 2: {"rank": 2}})
        self.assertRegex(notes[0], "per_rank rank: saved by 3 ranks, and this job has 1")

    def test_tensor_parallel_into_two_dimensions(self):
        ranks(2, save_moe, self.tiny, (2,), [Shard(1)], 1)
        found = ranks(4, load_moe, self.tiny, (2, 2), [Shard(2), Shard(0)], 1)
        self.assertEqual([one[0] for one in found], [1] * 4)

    def test_per_rank_values_are_restored_per_rank(self):
        ranks(2, save_moe, self.tiny, (2,), [Shard(0)], 1)
        found = ranks(2, load_moe, self.tiny, (2,), [Replicate()], 1)
        self.assertEqual([one[2] for one in found], [{"rank": 0}, {"rank": 1}])

    def test_values_larger_than_their_room_are_restored(self):
        ranks(2, save_large_values, self.tiny)
        self.assertEqual(ranks(2, load_large_values, self.tiny), [3 << 20, (3 << 20) + 1])
        ((saved, text),) = ranks(1, load_all_large_values, self.tiny)
        self.assertEqual(saved, {0: 3 << 20, 1: (3 << 20) + 1})
        self.assertEqual(text, "small")

    def test_fully_sharded_module_and_optimizer(self):
        ranks(2, fsdp_train, self.tiny)
        one, other = ranks(2, fsdp_resume, self.tiny)
        self.assertEqual(one, other)

    def test_ddp_module_stores_replicas_once(self):
        written = ranks(2, ddp_save, self.tiny)
        self.assertEqual(sum(written), 2 * (64 << 10) + 4 * 1024 * 513)
        self.assertLess(abs(written[0] - written[1]), 64 << 10)  # spread over the ranks
        ranks(1, ddp_load, self.tiny)


def fsdp_model():
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.Linear(9, 5))
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def fsdp_steps(model, optimizer, first, last):
    losses = []
    for step in range(first, last):
        loss = (model(filled((4, 7), step)) - filled((4, 5), step + 100)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def fsdp_state(model, optimizer):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optim": moments}


def fsdp_train(rank, run):
    model = fsdp_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    fsdp_steps(model, optimizer, 0, 3)
    with saver(run) as tiny:
        tiny.save(3, fsdp_state(model, optimizer)).durable(support.TIMEOUT)
        with tiny.session.restore(3) as view:
            assert view.view.step == 3


def fsdp_resume(rank, run):
    from torch.distributed.checkpoint.state_dict import set_state_dict
    whole = fsdp_model()
    optimizer = torch.optim.AdamW(whole.parameters(), lr=0.01)
    uninterrupted = fsdp_steps(whole, optimizer, 0, 6)[3:]
    model = fsdp_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = fsdp_state(model, optimizer)
    with saver(run) as tiny:
        tiny.restore(state)
    set_state_dict(model, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optim"])
    resumed = fsdp_steps(model, optimizer, 3, 6)
    assert resumed == uninterrupted, (resumed, uninterrupted)
    return resumed


def ddp_module():
    torch.manual_seed(1)
    return torch.nn.Linear(512, 1024)


def ddp_save(rank, run):
    model = torch.nn.parallel.DistributedDataParallel(ddp_module())
    with saver(run) as tiny:
        pending = tiny.save(1, {"model": model.state_dict()})
        pending.durable(support.TIMEOUT)
        return pending._snapshot.info().bytes


def ddp_load(rank, run):
    model = torch.compile(ddp_module())  # its names have the prefix _orig_mod.
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
    with saver(run) as tiny:
        tiny.restore({"model": model.state_dict()})
    assert all(same(value, expected[name]) for name, value in model.state_dict().items())


class Promises(StoreTest):
    def test_later_saves_use_no_collective(self):
        def body(rank, run):
            state = moe(mesh(2), [Shard(0)])
            with saver(run) as tiny:
                tiny.save(1, state).durable(support.TIMEOUT)

                def refuse(*_, **__):
                    raise AssertionError("a collective after the first save")
                for name in ("all_gather_object", "all_gather", "all_reduce", "broadcast",
                             "barrier", "gather_object", "broadcast_object_list"):
                    setattr(dist, name, refuse)
                dist.destroy_process_group()
                tiny.save(2, state).durable(support.TIMEOUT)
        ranks(2, body, self.tiny)

    def test_ranks_with_different_content_are_named(self):
        def body(rank, run):
            with saver(run) as tiny:
                with self.assertRaisesRegex(
                        ckptd.InvalidArgument,
                        "tensor rng: ranks 0 and 1 bring different content under one name"):
                    tiny.save(1, {"rng": torch.full((4,), float(rank)), "w": torch.ones(3)})
                assert tiny.session.query("log", target=run) == []
        ranks(2, body, self.tiny)

    def test_lowest_rank_decides_on_request(self):
        def body(rank, run):
            state = {"mean": torch.full((4,), float(rank)), "seen": rank}
            with saver(run, lowest_rank=["mean", "seen"]) as tiny:
                tiny.save(1, state).durable(support.TIMEOUT)
                tiny.restore(state)
            assert state["seen"] == 0 and float(state["mean"].sum()) == 0
        ranks(2, body, self.tiny)

    def test_a_refusal_of_one_rank_reaches_all(self):
        def body(rank, run):
            state = {"w": torch.empty(4, device="meta" if rank == 1 else "cpu")}
            with saver(run) as tiny, self.assertRaisesRegex(
                    ckptd.InvalidArgument, "tensor w on rank 1: it is on the meta device"):
                tiny.save(1, state)
        ranks(2, body, self.tiny)

    def test_a_shared_value_that_one_rank_cannot_store_is_refused(self):
        def body(rank, run):
            with saver(run) as tiny, self.assertRaisesRegex(
                    ckptd.InvalidArgument, "value odd: object"):
                tiny.save(1, {"w": torch.ones(3), "odd": object() if rank else 1})
        ranks(2, body, self.tiny)

    def test_a_value_that_one_rank_cannot_pickle_fails_all(self):
        def body(rank, run):
            state = {"w": torch.ones(3), "odd": [1]}
            with saver(run, allow_pickle=["odd"]) as tiny:
                odd = {**state, "odd": [threading.Lock() if rank == 0 else {1}]}
                with self.assertRaisesRegex(ckptd.InvalidArgument, "rank 0.*pickle"):
                    tiny.save(1, odd)
                tiny.save(2, state).durable(support.TIMEOUT)
                if rank == 0:
                    with self.assertRaisesRegex(ckptd.InvalidArgument, "rank 0.*pickle"):
                        tiny.save(3, odd)
                else:
                    with self.assertRaisesRegex(ckptd.Aborted, "pickle"):
                        tiny.save(3, odd).durable(support.TIMEOUT)
        ranks(2, body, self.tiny)

    def test_a_rank_that_failed_alone_compares_again(self):
        def body(rank, run):
            with ckptd.Session(run, arena_bytes=support.ARENA, slab_bytes=1 << 20) as session:
                session.register([ckptd.Unit("w", (ckptd.Tensor("w", "F32", (1,)),))])
                epoch = session.join(rank, 2)
                compared = content.Comparison("test")

                def check(turn, told=0):
                    compared.check(epoch, turn, [("tensor", "w", [0, 1])], None, support.TIMEOUT,
                                   lambda: [told])
                if rank == 1:
                    with mock.patch.object(type(epoch), "get", side_effect=ckptd.Unavailable("")):
                        with self.assertRaises(ckptd.Unavailable):
                            check(0)
                else:
                    check(0)
                for turn in (1, 2):
                    check(turn)
                check(3, rank)  # nobody compares any more
                epoch.set(f"end.{rank}", b"1")  # a rank that leaves would end the epoch
                with contextlib.suppress(ckptd.Aborted):  # the other one has just left
                    epoch.get(f"end.{1 - rank}", support.TIMEOUT)
        ranks(2, body, self.tiny)

    def test_memory_that_is_gone_at_the_first_save_is_refused(self):
        def body(rank, run):
            state = {"w": torch.ones(1 << 16), "v": torch.ones(3)}
            with saver(run) as tiny:
                tiny.restore(state, step="continue")
                state["w"].untyped_storage().resize_(0)
                with self.assertRaisesRegex(ckptd.InvalidArgument, "tensor w on rank . has no|"
                                            "tensor w on rank .: Tensor has no storage"):
                    tiny.save(1, state)
        ranks(2, body, self.tiny)

    def test_new_key_on_one_rank_aborts_save(self):
        def body(rank, run):
            state = {"w": torch.ones(4)}
            with saver(run) as tiny:
                tiny.save(1, state).durable(support.TIMEOUT)
                if rank == 1:
                    with self.assertRaisesRegex(ckptd.InvalidArgument,
                                                "tensor extra: it is new on rank 1"):
                        tiny.save(2, {**state, "extra": torch.ones(1)})
                else:
                    with self.assertRaisesRegex(ckptd.Aborted, "tensor extra"):
                        tiny.save(2, state).durable(support.TIMEOUT)
                tiny.save(3, state).durable(support.TIMEOUT)
        ranks(2, body, self.tiny)

    def test_ranks_of_different_shape_are_refused(self):
        def body(rank, run):
            with saver(run) as tiny, self.assertRaisesRegex(
                    ckptd.InvalidArgument, r"tensor w: F32 \[3\] on rank 0, F32 \[4\] on rank 1"):
                tiny.save(1, {"w": torch.ones(3 + rank)})
        ranks(2, body, self.tiny)

    def test_a_run_keeps_its_first_metadata(self):
        for step, metadata in enumerate(({"data": "one"}, {"data": "other"}, None), 1):
            with saver(self.tiny, metadata=metadata) as tiny:
                state = {"w": filled((4,), step)}
                tiny.restore(zeroed(state), step="continue")
                tiny.save(step, state).durable(support.TIMEOUT)
                schema = tiny.session.query("schema", target=self.tiny)
            self.assertEqual(schema["metadata"], {"data": "one"})

    def test_ranks_with_different_metadata_are_refused(self):
        def body(rank, run):
            with saver(run, metadata={"host": rank}) as tiny, self.assertRaisesRegex(
                    ckptd.InvalidArgument, "option metadata: '11 bytes, hash .*' on rank 0, '11 "):
                tiny.save(1, {"w": torch.ones(3)})
        ranks(2, body, self.tiny)

    def test_the_config_of_rank_0_is_kept(self):
        def body(rank, run):
            with saver(run, metadata={"data": "one", "hf_config": {"cache": rank}}) as tiny:
                tiny.save(1, {"w": torch.ones(3)}).durable(support.TIMEOUT)
                return tiny.session.query("schema", target=run)["metadata"]
        found = ranks(2, body, self.tiny)
        self.assertEqual(found, [{"data": "one", "hf_config": {"cache": 0}}] * 2)

    def test_an_uncovered_tensor_is_refused(self):
        def body(rank, run):
            part = torch.ones(2, 4)
            part.global_shape, part.global_offsets = (6, 4), [(2 * rank, 0)]
            part.local_offsets, part.local_sizes = [(0, 0)], [(2, 4)]
            with saver(run) as tiny, self.assertRaisesRegex(
                    ckptd.InvalidArgument, "tensor w: the ranks hold only 16 of its 24 elements"):
                tiny.save(1, {"w": part})
        ranks(2, body, self.tiny)


if __name__ == "__main__":
    unittest.main()
