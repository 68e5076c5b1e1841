"""ckptd.megatron with the experts and state dicts of Megatron-Core itself, on the CPU."""

import argparse
import importlib.util
import io
import os
import unittest
import warnings

import pytorch_support as support
from pytorch_support import ARENA, StoreTest, ckptd, dist, filled, torch

if not importlib.util.find_spec("megatron"):
    raise unittest.SkipTest("megatron-core is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of parts that are not installed, such as Apex
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.mapping import (
        LocalNonpersistentObject, ShardedObject, ShardedTensor)
    from megatron.core.dist_checkpointing.optimizer import (
        get_param_id_to_sharded_param_map, optim_state_to_sharding_state)
    from megatron.core.dist_checkpointing.utils import replace_prefix_for_sharding
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.mlp import MLPSubmodules
    from megatron.core.transformer.moe.experts import SequentialMLP
    from megatron.core.transformer.transformer_config import TransformerConfig

EXPERTS, LAYERS, WIDTH, HIDDEN = 4, 2, 8, 6
STRATEGIES = importlib.util.find_spec("megatron.core.dist_checkpointing.strategies.base")


def checkpoint(run, **options):
    return ckptd.megatron.Checkpoint(run, **{
        "arena_bytes": ARENA, "slab_bytes": 1 << 20, "timeout": support.TIMEOUT,
        "values_bytes": 64 << 10, "patience": support.TIMEOUT, **options})


class Job:
    """Experts of Megatron-Core, spread over all ranks, an optimizer, and common state."""

    def __init__(self, gated=True, metadata=None):
        size = dist.get_world_size()
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.initialize_model_parallel(expert_model_parallel_size=size)
        self.metadata = metadata or {}
        self.rank, self.mine = dist.get_rank(), EXPERTS // size
        config = TransformerConfig(
            num_layers=LAYERS, hidden_size=WIDTH, ffn_hidden_size=HIDDEN, num_attention_heads=2,
            num_moe_experts=EXPERTS, moe_ffn_hidden_size=HIDDEN, gated_linear_unit=gated,
            add_bias_linear=False, use_cpu_initialization=True, expert_model_parallel_size=size)
        groups = ProcessGroupCollection.use_mpu_process_groups(
            required_pgs=["ep", "expt_tp", "expt_dp", "tp"])
        self.layers = torch.nn.ModuleList(
            SequentialMLP(self.mine, config, MLPSubmodules(
                linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear), groups)
            for _ in range(LAYERS))
        self.routers = torch.nn.ParameterList(
            filled((EXPERTS, WIDTH), layer) for layer in range(LAYERS))
        self.step = 0
        for (layer, expert, at), parameter in self.parameters():
            parameter.data.copy_(filled(parameter.shape, 100 * layer + 10 * expert + at))
        self.trained = [*self.layers.parameters(), *self.routers]
        self.optimizer = torch.optim.AdamW(self.trained, lr=0.1)
        self.rng = torch.zeros(4, dtype=torch.uint8)

    def parameters(self):
        for layer, experts in enumerate(self.layers):
            for expert, module in enumerate(experts.local_experts):
                for at, parameter in enumerate(module.parameters()):
                    yield (layer, self.rank * self.mine + expert, at), parameter

    def train(self, until):
        for self.step in range(self.step + 1, until + 1):
            for place, parameter in self.parameters():
                seed = 1000 * self.step + sum(n * m for n, m in zip(place, (100, 10, 1)))
                parameter.grad = filled(parameter.shape, seed)
            for layer, router in enumerate(self.routers):
                router.grad = filled(router.shape, 10 * self.step + layer)
            self.optimizer.step()
        self.rng = torch.full((4,), self.step, dtype=torch.uint8)

    def state(self):
        """The sharded state dict, as Megatron-LM builds it of its models and optimizers."""
        model = {}
        for layer, experts in enumerate(self.layers):
            prefix = f"decoder.layers.{layer}."
            part = experts.sharded_state_dict(
                prefix + "mlp.experts.", ((0, layer, LAYERS),), self.metadata)
            replace_prefix_for_sharding(part, prefix, "decoder.layers.")
            model.update(part)
        for layer, router in enumerate(self.routers):
            model[f"routers.{layer}"] = ShardedTensor.from_rank_offsets(
                "decoder.layers.mlp.router.weight", router, (0, layer, LAYERS),
                prepend_axis_num=1, replica_id=self.rank)
        if not self.optimizer.state:
            for parameter in self.trained:
                self.optimizer.state[parameter] = {
                    name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.optimizer.state[parameter]["step"] = torch.tensor(0.0)
        optimizer = self.optimizer.state_dict()
        step = optimizer["state"][0]["step"]
        optim_state_to_sharding_state(optimizer, get_param_id_to_sharded_param_map(
            model, self.trained), ("step",))
        optimizer["step"] = step
        object_of_all = ShardedObject("extra_state", io.BytesIO(b"scale"), (1,), (0,), self.rank)
        return {"model": model, "optimizer": optimizer, "iteration": self.step, "rng": [
            ShardedObject("rng_state", {"torch": self.rng, "numpy": ("MT", self.rank)},
                          (dist.get_world_size(),), (self.rank,))], "extra": object_of_all,
                "lr": {"decay": [0.1, (1, None)]}, "local": LocalNonpersistentObject("mine")}

    def load(self, state):
        self.step = state["iteration"]
        step = state["optimizer"].pop("step")
        for part in state["optimizer"]["state"].values():
            part["step"] = step.clone()
        self.optimizer.load_state_dict(state["optimizer"])

    def content(self):
        """Weights and moments of this rank: of experts by layer, expert and number, of routers by
        layer."""
        held = [*self.parameters(), *enumerate(self.routers)]
        found = {(place, "w"): value for place, value in held}
        for place, value in held:
            for name in ("exp_avg", "exp_avg_sq"):
                found[place, name] = self.optimizer.state[value][name]
        return {key: value.detach().clone() for key, value in found.items()}


def alone(body, *arguments):
    return support.ranks(1, body, *arguments)[0]


def expected(_, steps, gated=True):
    job = Job(gated)
    job.train(steps)
    return job.content()


def check_like(found, wanted):
    assert found and found.keys() <= wanted.keys()
    for key, value in found.items():
        assert support.same(value, wanted[key]), key


def saved(rank, run, steps, gated, metadata):
    job, mine = Job(gated, metadata), checkpoint(run)
    assert mine.load(job.state()) is None
    for step in range(1, steps + 1):
        job.train(step)
        mine.save(step, job.state(), {"loss": 0.5})
    job.layers[0].local_experts[0].linear_fc1.weight.data.zero_()  # the save has its own copy
    mine.close()


def resumed(rank, run, steps, gated, metadata):
    job, mine = Job(gated, metadata), checkpoint(run)
    state = mine.load(job.state(), allow=["objects.rng_state*"])
    assert state["lr"] == {"decay": [0.1, (1, None)]} and state["local"] == "mine"
    assert state["extra"].read() == b"scale"
    job.load(state)
    assert job.step == mine.restored.step == steps
    before = job.content()
    job.train(steps + 1)
    mine.save(steps + 1, job.state()).durable(support.TIMEOUT)
    units = mine.saver.session.query("schema", target=run)["units"]
    mine.close()
    return before, job.content(), units


class Resharding(StoreTest):
    def reshard(self, before, after, gated=True, metadata=None):
        support.ranks(before, saved, self.tiny, 2, gated, metadata)
        two, three = (alone(expected, steps, gated) for steps in (2, 3))
        for found, later, units in support.ranks(after, resumed, self.tiny, 2, gated, metadata):
            check_like(found, two)
            check_like(later, three)
        experts = {(unit["layer"], unit["expert"], unit["part"]) for unit in units
                   if unit["expert"] is not None}
        self.assertEqual(experts, {(layer, expert, part) for layer in range(LAYERS)
                                   for expert in range(EXPERTS)
                                   for part in ("weights", "optimizer")})

    def test_two_expert_ranks_become_one(self):
        self.reshard(2, 1)

    def test_one_expert_rank_becomes_two(self):
        self.reshard(1, 2, gated=False)

    def test_experts_under_keys_of_their_own(self):
        self.reshard(2, 1, gated=False, metadata={"singleton_local_shards": True})

    def test_each_rank_restores_its_own_object(self):
        support.ranks(2, saved, self.tiny, 2, True, None)

        def body(rank, run):
            job, mine = Job(), checkpoint(run)
            rng = mine.load(job.state(), 1)["rng"][0]
            assert rng["numpy"] == ("MT", rank) and rng["torch"].tolist() == [1] * 4
        support.ranks(2, body, self.tiny)


class Contract(StoreTest):
    def test_a_rank_killed_mid_save_leaves_latest_whole(self):
        def body(rank, run, save):
            job, mine = Job(), checkpoint(run)
            job.train(1)
            mine.save(1, job.state()).durable(support.TIMEOUT)
            job.train(2)
            save(rank, lambda: mine.save(2, job.state()))
        with support.two_ranks_one_dies() as save:
            with self.assertRaisesRegex(AssertionError, "^rank 1: died or hung"):
                support.ranks(2, body, self.tiny, save)
        found, _, _ = alone(resumed, self.tiny, 1, True, None)
        check_like(found, alone(expected, 1))

    def test_pickling_objects_needs_permission(self):
        def body(rank, run):
            state = {"w": ShardedTensor.from_rank_offsets("w", torch.ones(2), replica_id=rank),
                     "args": argparse.Namespace(lr=1)}
            with self.assertRaisesRegex(ckptd.InvalidArgument, "value common.args: Namespace on "
                                        r'rank 0 .*allow_pickle=\["common.args"\]'):
                checkpoint(run).save(1, state)
            mine = checkpoint(run + "-2", allow_pickle=["common.args"])
            mine.save(1, state).durable(support.TIMEOUT)
            assert mine.load(state)["args"].lr == 1
            mine.close()
            with self.assertRaisesRegex(ckptd.InvalidArgument, "value common.args is a pickle"):
                checkpoint(run + "-2").load(state)
        support.ranks(2, body, self.tiny)

    def test_different_replicas_and_holes_are_refused(self):
        def body(rank, run):
            with self.assertRaisesRegex(ckptd.InvalidArgument,
                                        "value objects.rng.*: ranks 0 and 1 bring different"):
                checkpoint(run).save(1, {
                    "w": ShardedTensor.from_rank_offsets("w", torch.ones(2), replica_id=rank),
                    "rng": ShardedObject("rng", rank, (1,), (0,), rank)})
            with self.assertRaisesRegex(ckptd.InvalidArgument, "tensor experts: the ranks hold "
                                        "only 4 of its 8 elements"):
                checkpoint(run + "-2").save(1, {"e": ShardedTensor.from_rank_offsets(
                    "experts", torch.ones(4), (0, 0, 2), replica_id=rank)})
            with self.assertRaisesRegex(ckptd.InvalidArgument,
                                        "tensor w on rank 0: .*under the same key"):
                checkpoint(run + "-3").save(1, {
                    at: ShardedTensor.from_rank_offsets("w", torch.ones(at + 1))
                    for at in range(2)})
        support.ranks(2, body, self.tiny)

    @unittest.skipIf(STRATEGIES, "this release of Megatron-Core has strategies")
    def test_strategies_of_newer_releases_are_refused(self):
        for make in (checkpoint(self.tiny).save_strategy, checkpoint(self.tiny).load_strategy):
            with self.assertRaisesRegex(ckptd.FailedPrecondition, "call Checkpoint.save"):
                make()

    @unittest.skipUnless(STRATEGIES, "this release of Megatron-Core stores common state elsewhere")
    def test_strategies_of_dist_checkpointing(self):
        def body(rank, run, folder):
            folder = os.path.join(folder, "iter_0000002")
            if rank == 0:
                os.makedirs(folder)
            dist.barrier()
            job, mine = Job(), checkpoint(run)
            job.train(2)
            later = dist_checkpointing.save(job.state(), folder, mine.save_strategy(),
                                            async_sharded_save=True)
            wanted = job.content()
            job.train(3)
            later.execute_sync()
            other = Job()
            state = dist_checkpointing.load(other.state(), folder, mine.load_strategy())
            assert state["iteration"] == 2 and state["rng"][0]["numpy"] == ("MT", rank)
            other.load(state)
            check_like(other.content(), wanted)
            assert sorted(os.listdir(folder)) == ["common.pt", "metadata.json"]
        support.ranks(2, body, self.tiny, self.folder)


if __name__ == "__main__":
    unittest.main()
