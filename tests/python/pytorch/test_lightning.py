"""ckptd.lightning below the real Trainer of Lightning, on the CPU. Skipped without lightning."""

import argparse
import collections
import contextlib
import importlib.util
import io
import json
import logging
import os
import signal
import tempfile
import unittest
import warnings

import pytorch_support as support
from pytorch_support import StoreTest, same, torch
from support import ROOT, ckptd

if not importlib.util.find_spec("lightning"):
    raise unittest.SkipTest("lightning is not installed; ./dev python --torch does")

import lightning  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

EXAMPLE = ROOT / "client" / "python" / "examples" / "lightning_plugin.py"
SMALL = {"arena_bytes": 32 << 20, "slab_bytes": 1 << 20, "values_bytes": 64 << 10,
         "timeout": support.TIMEOUT}


class Model(lightning.LightningModule):
    """Tied weights, a BatchNorm with its buffers, and an optimizer with moments."""

    def __init__(self, **hyper):
        super().__init__()
        self.save_hyperparameters(hyper)
        self.first = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.losses = []

    def training_step(self, batch, _):
        loss = (self.second(self.norm(self.first(batch[0]))) - batch[0]).square().mean()
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, _):
        self.log("distance", self.first(batch[0]).square().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


def data():
    generator = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(8, 4, generator=generator)), 4)


def trained(io_, folder, epochs, ckpt_path=None, model=None, **keep):
    """Two steps per epoch; the end of an epoch saves."""
    torch.manual_seed(0)
    model = model or Model()
    keeps = ModelCheckpoint(folder, **{"monitor": "loss", "save_top_k": -1, **keep})
    trainer = trainer_of(io_, max_epochs=epochs, callbacks=[keeps])
    trainer.fit(model, data(), ckpt_path=ckpt_path)
    return model, keeps


def trainer_of(io_, **options):
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        return lightning.Trainer(accelerator="cpu", devices=1, plugins=[io_] if io_ else [],
                                 logger=False, enable_progress_bar=False,
                                 enable_model_summary=False, **options)


class LightningTest(StoreTest):
    def setUp(self):
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
        self.addCleanup(warnings.resetwarnings)
        self.checkpoints = os.path.join(self.folder, self.tiny)
        self.io = ckptd.lightning.CheckpointIO(self.tiny, **SMALL)
        self.addCleanup(self.io.teardown)

    def path(self, name):
        return os.path.join(self.checkpoints, name)

    def log(self, **arguments):
        with ckptd.Session(self.tiny, control=True) as session:
            try:
                return session.query("log", target=self.tiny, **arguments)
            except ckptd.NotFound:
                return []


class Training(LightningTest):
    def test_a_resumed_fit_repeats_the_losses(self):
        whole, _ = trained(None, self.path("whole"), 4)
        first, _ = trained(self.io, self.checkpoints, 2, save_last="link")
        second, _ = trained(self.io, self.checkpoints, 4, "last", save_last="link")
        self.assertEqual(first.losses + second.losses, whole.losses)
        for name, value in whole.state_dict().items():
            self.assertTrue(same(value, second.state_dict()[name]), name)
        newest = self.log()[0]
        self.assertEqual((newest["step"], newest["metrics"]), (8, {"epoch": 3, "global_step": 8}))

    def test_latest_is_a_path(self):
        trained(self.io, self.checkpoints, 2)
        again, _ = trained(self.io, self.checkpoints, 3, "latest")
        self.assertEqual(len(again.losses), 2)

    def test_rotation_removes_commits_from_the_run(self):
        _, keeps = trained(self.io, self.checkpoints, 5, save_top_k=2, save_last=True)
        files = {name for name in os.listdir(self.checkpoints)}
        self.assertEqual(files, {os.path.basename(path) for path in keeps.best_k_models} |
                         {"last.ckpt"})
        named = {json.loads(open(self.path(name), encoding="utf-8").read())["step"]
                 for name in files}
        self.assertEqual({commit["step"] for commit in self.log()}, named)
        self.assertEqual(len(named), 3)

    def test_two_saves_of_one_step_are_two_commits(self):
        trained(self.io, self.checkpoints, 1, save_last=True)
        self.assertEqual([(commit["step"], commit["metrics"]["global_step"])
                          for commit in self.log()], [(3, 2), (2, 2)])

    def test_validation_of_the_best_joins_nothing(self):
        model, keeps = trained(self.io, self.checkpoints, 2)
        before = self.log()
        trainer = trainer_of(self.io)
        with contextlib.redirect_stdout(io.StringIO()):
            found = trainer.validate(Model(), data(), ckpt_path=keeps.best_model_path,
                                     verbose=False)
        self.assertEqual(set(found[0]), {"distance"})
        self.assertEqual(self.log(), before)
        trained(self.io, self.path("on"), 3, "latest", model=model)
        self.assertEqual(self.log()[0]["lineage"], before[0]["lineage"] + 1)

    def test_training_over_a_run_with_commits_is_refused(self):
        trained(self.io, self.checkpoints, 1)
        other = ckptd.lightning.CheckpointIO(self.tiny, **SMALL)
        self.addCleanup(other.teardown)
        with self.assertRaisesRegex(ckptd.FailedPrecondition, "restore first"):
            trained(other, self.checkpoints, 1)

    def test_a_run_begins_from_a_file_of_lightning(self):
        _, keeps = trained(None, self.path("torch"), 1)
        self.assertTrue(torch.load(keeps.best_model_path, weights_only=False))
        trained(self.io, self.checkpoints, 2, keeps.best_model_path)
        self.assertEqual([commit["step"] for commit in self.log()], [4])

    def test_objects_are_refused_unless_allowed_by_name(self):
        model = Model(options=argparse.Namespace(depth=3))
        with self.assertRaisesRegex(ckptd.InvalidArgument, r'"lightning\.hyper_parameters"'):
            trained(self.io, self.checkpoints, 1, model=model)
        self.assertEqual(self.log(), [])
        allowed = ckptd.lightning.CheckpointIO(
            self.tiny, allow_pickle=["lightning.hyper_parameters"], **SMALL)
        self.addCleanup(allowed.teardown)
        trained(allowed, self.checkpoints, 1, model=model)
        with self.assertRaisesRegex(ckptd.InvalidArgument, "is a pickle"):
            self.io.load_checkpoint("latest")
        found = allowed.load_checkpoint("latest", weights_only=False)
        self.assertEqual(found["hyper_parameters"]["options"].depth, 3)


class Killed(StoreTest):
    def job(self, folder):
        """Two ranks of the example, as torchrun starts them."""
        return support.processes([str(EXAMPLE)], 2, folder, TORCHELASTIC_RUN_ID="1",
                                 GROUP_RANK="0", LOCAL_WORLD_SIZE="2")

    def steps(self, folder, kill=None):
        """{step: its line}; `kill`: SIGKILL to all ranks once this step has been trained."""
        jobs, found = self.job(folder), {}
        try:
            with support.killed_after_timeout(jobs):
                for line in jobs[0].stdout:
                    if line.startswith("step"):
                        found[int(line.split()[1].rstrip(":"))] = line
                    if kill is not None and kill in found:
                        break
                if kill is None:
                    for job in jobs:
                        _, errors = job.communicate()
                        self.assertEqual(job.returncode, 0, errors)
        finally:
            for job in jobs:
                job.send_signal(signal.SIGKILL)
                job.communicate()
        return found

    def test_two_killed_ranks_repeat_the_losses(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
            first = self.steps(folder, kill=10)  # an epoch has 4 steps
            second = self.steps(folder)
            with ckptd.Session("lightning", control=True) as session:
                kept = len(session.query("log", target="lightning"))
                session.query("rm", target="lightning")
            whole = self.steps(other)
        self.assertEqual(len(whole), 20)
        self.assertGreaterEqual(min(second), 9)
        self.assertEqual(min(second) % 4, 1)
        self.assertEqual({**whole, **first, **second}, whole)
        self.assertEqual(set(first) | set(second), set(whole))
        self.assertLessEqual(kept, 3, "the last, that of the resume, and one without a file")


class Files(LightningTest):
    def test_a_checkpoint_comes_back_whole(self):
        weights = collections.OrderedDict(
            w=torch.randn(3, 5).bfloat16(), empty=torch.empty(0, 2), count=torch.tensor(7))
        weights["module.tied"] = weights["w"]
        weights._metadata = collections.OrderedDict({"": {"version": 2}})
        large = torch.randn(200, 100)
        checkpoint = {
            "global_step": 3, "epoch": 1, "state_dict": weights,
            "optimizer_states": [{"state": {0: {"step": torch.tensor(3.0), "m": large[0]}},
                                  "param_groups": [{"lr": 0.1, "betas": (0.9, 0.95)}]}],
            "callbacks": {"Best{'monitor': 'loss'}": {"score": torch.tensor(0.5), "ema": large}},
            "loops": {"$odd": {1: None, (2, 3): "x"}}, "raw": b"\0bytes"}
        self.io.save_checkpoint(checkpoint, self.path("one.ckpt"))
        found = self.io.load_checkpoint(self.path("one.ckpt"))
        self.assertEqual(list(found), list(checkpoint))
        self.assertEqual(list(found["state_dict"]), list(weights))
        self.assertEqual(found["state_dict"]._metadata, weights._metadata)
        self.equal(found, checkpoint)
        moved = self.io.load_checkpoint(self.path("one.ckpt"), map_location="meta")
        self.assertEqual(moved["state_dict"]["w"].device.type, "meta")

    def equal(self, one, other):
        if isinstance(other, torch.Tensor):
            self.assertTrue(same(one, other))
        elif isinstance(other, dict):
            self.assertEqual(set(one), set(other))
            for key in other:
                self.equal(one[key], other[key])
        elif isinstance(other, (list, tuple)):
            self.assertEqual((type(one), len(one)), (type(other), len(other)))
            for mine, its in zip(one, other):
                self.equal(mine, its)
        else:
            self.assertEqual(one, other)

    def save(self, step, name, **more):
        self.io.save_checkpoint({"global_step": step, "state_dict": {"w": torch.ones(4) * step},
                                 **more}, self.path(name))

    def test_an_overwritten_file_removes_its_commit(self):
        self.save(1, "last.ckpt")
        self.save(2, "last.ckpt")
        self.assertEqual([commit["step"] for commit in self.log()], [2])

    def test_removing_a_link_leaves_the_commit(self):
        self.save(1, "one.ckpt")
        os.symlink("one.ckpt", self.path("last.ckpt"))
        self.assertEqual(self.io.load_checkpoint(self.path("last.ckpt"))["global_step"], 1)
        self.io.remove_checkpoint(self.path("last.ckpt"))
        self.assertEqual(os.listdir(self.checkpoints), ["one.ckpt"])
        self.assertEqual(len(self.log()), 1)

    def test_a_file_of_a_replaced_run_is_refused(self):
        self.save(1, "one.ckpt")
        self.io.teardown()
        with ckptd.Session(self.tiny, control=True) as session:
            session.query("rm", target=self.tiny)
        self.io = ckptd.lightning.CheckpointIO(self.tiny, **SMALL)
        self.addCleanup(self.io.teardown)
        self.save(1, "two.ckpt")
        with self.assertRaisesRegex(ckptd.NotFound, "one.ckpt.* does not have"):
            self.io.load_checkpoint(self.path("one.ckpt"))
        self.io.remove_checkpoint(self.path("one.ckpt"))
        self.assertEqual(len(self.log()), 1, "the commit of two.ckpt")

    def test_new_tensors_are_refused_and_leave_no_file(self):
        self.save(1, "one.ckpt")
        with self.assertRaisesRegex(ckptd.InvalidArgument, "tensor optimizer_states.0.m: .* new"):
            self.save(2, "two.ckpt", optimizer_states=[{"m": torch.ones(2)}])
        self.assertEqual(os.listdir(self.checkpoints), ["one.ckpt"])

    def test_a_run_of_another_kind_is_refused(self):
        with ckptd.Saver(self.tiny, **SMALL) as saver:
            saver.save(1, {"w": torch.ones(4)}).durable(support.TIMEOUT)
        with self.assertRaisesRegex(ckptd.FailedPrecondition, "not saved by ckptd.lightning"):
            self.io.load_checkpoint("latest")

    def test_a_new_run_has_no_latest(self):
        with self.assertRaisesRegex(ckptd.NotFound, self.tiny):
            self.io.load_checkpoint("latest")

    def test_malformed_files_are_refused_by_name(self):
        whole = {"ckptd": 1, "run": "r", "lineage": 1, "step": 2, "time": "t"}
        wrong = [{**whole, "step": value} for value in (-1, 2.0, True, "2", None, [])]
        wrong += [{**whole, "run": 5}, {**whole, "time": None}, {"ckptd": 1}]
        os.makedirs(self.checkpoints)
        for told in wrong:
            with open(self.path("bad.ckpt"), "w", encoding="utf-8") as file:
                json.dump(told, file)
            with self.assertRaisesRegex(ckptd.Corrupt, "bad.ckpt"):
                self.io.load_checkpoint(self.path("bad.ckpt"))
        with open(self.path("bad.ckpt"), "w", encoding="utf-8") as file:
            json.dump({**whole, "ckptd": 2}, file)
        with self.assertRaisesRegex(ckptd.VersionMismatch, "bad.ckpt.*upgrade"):
            self.io.load_checkpoint(self.path("bad.ckpt"))

    def test_other_files_are_left_to_lightning(self):
        os.makedirs(self.checkpoints)
        for raw in (b"", b"{", b"[" * 4000, b"\xff\0", b'"ckptd"', b'{"ckptd":1}' + b" " * 5000):
            with open(self.path("other.ckpt"), "wb") as file:
                file.write(raw)
            with self.assertRaisesRegex(Exception, "^(?!.*names)"):
                self.io.load_checkpoint(self.path("other.ckpt"))
        self.io.remove_checkpoint(self.path("other.ckpt"))
        self.assertEqual(os.listdir(self.checkpoints), [])

    def test_remote_paths_and_options_are_refused(self):
        for call in (lambda: self.io.save_checkpoint({}, "s3://b/one.ckpt"),
                     lambda: ckptd.lightning.CheckpointIO("r", experts=2),
                     lambda: self.io.load_checkpoint("latest", map_location={"cpu": "cuda"})):
            with self.assertRaises(ckptd.InvalidArgument):
                call()
        with self.assertRaisesRegex(TypeError, "storage_options"):
            self.io.save_checkpoint({}, self.path("one.ckpt"), storage_options={})


if __name__ == "__main__":
    unittest.main()
