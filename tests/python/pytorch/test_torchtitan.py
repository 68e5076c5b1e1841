"""ckptd.torchtitan with torchtitan's own MoE, optimizer, scheduler and configuration, on the CPU.
Its Trainer needs CUDA, so that these tests call the manager as the Trainer does."""

import dataclasses
import importlib.util
import os
import unittest

import pytorch_support as support
from pytorch_support import ARENA, StoreTest, ckptd, dist, filled, mesh, torch
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

if not importlib.util.find_spec("torchtitan"):
    raise unittest.SkipTest("torchtitan is not installed")

from torchtitan.components.checkpointer import CheckpointManager  # noqa: E402
from torchtitan.components.optimizer import (  # noqa: E402
    LRSchedulersContainer, OptimizersContainer, default_adamw)
from torchtitan.models.common.linear import Linear  # noqa: E402
from torchtitan.models.common.moe import (  # noqa: E402
    GroupedExperts, MoE, RoutedExperts, TokenChoiceTopKRouter)
from torchtitan.models.common.token_dispatcher import LocalTokenDispatcher  # noqa: E402

EXPERTS, DIM, HIDDEN, LAYERS = 6, 8, 4, 2
OPTIONS = {"arena_bytes": ARENA, "slab_bytes": 1 << 20, "timeout": support.TIMEOUT,
           "patience": support.TIMEOUT}


class Trainer:
    """Values with the interface that torchtitan asks of a state."""

    def __init__(self, names):
        self.names = names
        for name in names:
            setattr(self, name, 0)

    def state_dict(self):
        return {name: getattr(self, name) for name in self.names}

    def load_state_dict(self, state):
        for name, value in state.items():
            setattr(self, name, value)


class Loader(Trainer):
    """State under the name of the data-parallel rank, as bytes, like torchtitan's loader."""

    def __init__(self):
        super().__init__(["position"])
        self.key = f"dp_rank_{dist.get_rank() if dist.is_initialized() else 0}"

    def state_dict(self):
        return {self.key: b"at %d" % self.position, "world_size": 1}

    def load_state_dict(self, state):
        self.position = int(state[self.key].split()[1])


def model(ep):
    """Layers of torchtitan's MoE, with the experts sharded over `ep` ranks."""
    whole = torch.nn.Module()
    whole.layers = torch.nn.ModuleDict()
    for layer in range(LAYERS):
        block = torch.nn.Module()
        block.moe = MoE.Config(
            num_experts=EXPERTS,
            router=TokenChoiceTopKRouter.Config(
                num_experts=EXPERTS, gate=Linear.Config(in_features=DIM, out_features=EXPERTS)),
            routed_experts=RoutedExperts.Config(
                inner_experts=GroupedExperts.Config(dim=DIM, hidden_dim=HIDDEN,
                                                    num_experts=EXPERTS),
                token_dispatcher=LocalTokenDispatcher.Config(num_experts=EXPERTS, top_k=1))).build()
        experts = block.moe.routed_experts.inner_experts
        for at, (name, weight) in enumerate(list(experts.named_parameters())):
            value = filled(weight.shape, 10 * layer + at)
            if ep:
                value = distribute_tensor(value, ep, [Shard(0)], src_data_rank=None)
            setattr(experts, name, torch.nn.Parameter(value))
        torch.nn.init.constant_(block.moe.router.gate.weight, 0.5)
        whole.layers[str(layer)] = block
    return whole


class Job:
    """The parts that the Trainer makes, and the manager built from a configuration."""

    def __init__(self, run, ep=None, loader=True, folder="unused", kind=None, **config):
        self.model = model(ep)
        self.optimizers = dataclasses.replace(
            default_adamw(lr=0.1), implementation="for-loop").build(model_parts=[self.model])
        self.schedulers = LRSchedulersContainer.Config(warmup_steps=2).build(
            optimizers=self.optimizers, training_steps=10)
        self.trainer = Trainer(["step", "ntokens_seen"])
        self.loader = Loader() if loader else None
        if kind is None:
            kind = ckptd.torchtitan.Manager
            config = {"run": run, "options": OPTIONS, **config}
        self.manager = kind.Config(
            enable=True, folder=folder, initial_load_model_only=False, **config).build(
            dataloader=self.loader, model_parts=[self.model], optimizers=self.optimizers,
            lr_schedulers=self.schedulers, states={"train_state": self.trainer}, sd_adapter=None,
            base_folder="")

    def train(self, until, last=0):
        for step in range(self.trainer.step + 1, until + 1):
            for at, parameter in enumerate(self.model.parameters()):
                grad = filled(parameter.shape, 100 * step + at)
                if isinstance(parameter, DTensor):
                    grad = distribute_tensor(grad, parameter.device_mesh, parameter.placements,
                                             src_data_rank=None)
                parameter.grad = grad
            self.optimizers.step()
            self.schedulers.step()
            self.trainer.step, self.trainer.ntokens_seen = step, 7 * step
            if self.loader:
                self.loader.position = 3 * step
            self.manager.maybe_wait_for_staging()
            self.manager.save(step, last_step=step == last)

    def content(self):
        """All tensors of the model and of the optimizer, unsharded."""
        tensors = {**self.model.state_dict(), **self.optimizers.state_dict()}
        return {name: value.full_tensor() if isinstance(value, DTensor) else value.clone()
                for name, value in tensors.items() if isinstance(value, torch.Tensor)}

    def check_like(self, other):
        mine, others = self.content(), other.content()
        assert mine.keys() == others.keys()
        for name, value in mine.items():
            assert support.same(value, others[name]), name
        assert self.trainer.state_dict() == other.trainer.state_dict()
        assert self.schedulers.state_dict() == other.schedulers.state_dict()


def reference(steps):
    job = Job("unused", interval=1000)
    job.train(steps)
    return job


def trained(rank, run, steps):
    job = Job(run, mesh(2), interval=2)
    assert not job.manager.load()
    job.train(steps, last=steps)
    job.manager.close()


class Resharding(StoreTest):
    def test_two_expert_ranks_become_one(self):
        support.ranks(2, trained, self.tiny, 3)
        job = Job(self.tiny, interval=2, exclude_from_loading=["dataloader"])
        self.assertTrue(job.manager.load())
        self.assertEqual((job.manager.restored.step, job.loader.position), (3, 0))
        job.check_like(reference(3))
        job.train(4)
        job.manager.pending.durable(support.TIMEOUT)
        job.check_like(reference(4))
        session = job.manager.saver.session
        units = session.query("schema", target=self.tiny)["units"]
        found = {(unit["layer"], unit["expert"], unit["part"]) for unit in units
                 if unit["expert"] is not None}
        self.assertEqual(found, {(layer, expert, part) for layer in range(LAYERS)
                                 for expert in range(EXPERTS) for part in ("weights", "optimizer")})
        log = [commit["step"] for commit in session.query("log", target=self.tiny)]
        self.assertEqual(log, [4, 3, 2])
        job.manager.close()

    def test_one_expert_rank_becomes_two(self):
        job = Job(self.tiny, interval=2, loader=False)
        job.train(4)
        job.manager.close()

        def body(rank, run):
            two = Job(run, mesh(2), interval=2, loader=False)
            assert two.manager.load(2) and two.manager.restored.step == 2
            two.check_like(reference(2))
            two.train(3, last=3)
            two.check_like(reference(3))
            two.manager.close()
        support.ranks(2, body, self.tiny)

    def test_each_rank_restores_its_data_position(self):
        support.ranks(2, trained, self.tiny, 2)

        def body(rank, run):
            job = Job(run, mesh(2))
            assert job.manager.load()
            assert (job.loader.position, job.trainer.ntokens_seen) == (6, 14)
        support.ranks(2, body, self.tiny)


class Killed(StoreTest):
    def test_a_rank_killed_mid_save_leaves_latest_whole(self):
        def body(rank, run, save):
            job = Job(run, mesh(2), interval=1)
            assert not job.manager.load()
            job.train(2)
            job.manager.pending.durable(support.TIMEOUT)

            def train():
                job.train(3)
                return job.manager.pending
            save(rank, train)
        with support.two_ranks_one_dies() as save:
            with self.assertRaisesRegex(AssertionError, "^rank 1: died or hung"):
                support.ranks(2, body, self.tiny, save)
        job = Job(self.tiny, exclude_from_loading=["dataloader"])
        self.assertTrue(job.manager.load())
        self.assertEqual(job.manager.restored.step, 2)
        job.check_like(reference(2))
        job.manager.close()


class Configuration(StoreTest):
    def test_a_new_run_begins_from_torchtitans_folder(self):
        folder = os.path.join(self.folder, self.tiny)
        files = Job(None, folder=folder, kind=CheckpointManager, interval=2, keep_latest_k=0)
        files.train(2)
        for first in (True, False):
            job = Job(self.tiny, folder=folder, interval=2)
            self.assertTrue(job.manager.load())
            job.check_like(files)
            self.assertEqual(job.manager.restored is None, first)
            if first:
                job.train(4)
                files = job
            job.manager.close()

    def test_only_due_steps_are_saved(self):
        job = Job(self.tiny, interval=3, enable_first_step_checkpoint=True)
        job.train(5, last=5)
        log = job.manager.saver.session.query("log", target=self.tiny)
        self.assertEqual([commit["step"] for commit in log], [5, 3, 1])
        job.manager.close()
        job = Job(self.tiny, load_only=True, interval=1)
        self.assertTrue(job.manager.load())
        self.assertFalse(job.manager.save(6))
        job.manager.close()

    def test_unsupported_options_are_refused(self):
        manager = ckptd.torchtitan.Manager
        with self.assertRaisesRegex(ckptd.InvalidArgument, "ckptctl export"):
            manager.Config(last_save_model_only=True)
        with self.assertRaisesRegex(ckptd.InvalidArgument, "create_seed_checkpoint"):
            manager.Config(create_seed_checkpoint=True)
        job = Job(self.tiny, interval=1)
        job.train(1)
        job.manager.close()
        job = Job(self.tiny, exclude_from_loading=["optimizer"])
        with self.assertRaisesRegex(ckptd.InvalidArgument, "optimizer has tensors"):
            job.manager.load()
        off = manager.Config().build(dataloader=None, model_parts=[], optimizers=None,
                                     lr_schedulers=None, states={}, sd_adapter=None)
        self.assertFalse(off.load() or off.save(1))
        off.close()

    def test_another_model_is_refused_by_name(self):
        job = Job(self.tiny, interval=1)
        job.train(1)
        job.manager.close()
        job = Job(self.tiny)
        experts = job.model.layers["1"].moe.routed_experts.inner_experts
        experts.w1_EFD = torch.nn.Parameter(torch.zeros(EXPERTS, HIDDEN, 2 * DIM))
        self.addCleanup(job.manager.close)
        with self.assertRaisesRegex(ckptd.InvalidArgument,
                                    r"tensor layers\.1\.moe\..*w1_EFD: .* on rank 0, and .* in "):
            job.manager.load()

    def test_torchtitan_parses_the_configuration(self):
        import tyro
        config = ckptd.torchtitan.Manager.Config(run="tiny", interval=50)
        found = tyro.cli(type(config), default=config, args=["--interval", "5", "--experts", "2"])
        self.assertEqual((found.run, found.interval, found.experts), ("tiny", 5, 2))
        self.assertEqual(found.to_dict()["interval"], 5)


if __name__ == "__main__":
    unittest.main()
