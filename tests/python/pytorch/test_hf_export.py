"""Exports of trainings with ckptd.hf: transformers loads them, and has the trained model.

`ckptctl` is the real program. Skipped without transformers."""

import contextlib
import importlib.util
import io
import json
import logging
import os
import subprocess
import tempfile
import unittest

import pytorch_support as support
from pytorch_support import StoreTest, ranks, same, torch
from support import ckptd

from ckptd import _library

WHY = "" if all(map(importlib.util.find_spec, ("transformers", "accelerate"))) else (
    "transformers and accelerate are not installed; ./dev python --torch does")
if not WHY:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from safetensors.torch import load_file
    import transformers
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
    transformers.utils.logging.disable_progress_bar()

EXPERTS, WIDTH, VOCABULARY, LENGTH = 4, 16, 64, 12
SMALL = {"arena_bytes": 32 << 20, "slab_bytes": 1 << 20, "values_bytes": 64 << 10}
SHAPE = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=WIDTH, head_dim=8,
             num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
             max_position_embeddings=32)


def qwen3_moe():
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        **SHAPE, moe_intermediate_size=WIDTH, num_experts=EXPERTS, num_experts_per_tok=2))


def mixtral():
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(
        **SHAPE, num_local_experts=EXPERTS, num_experts_per_tok=2))


def qwen3_tied():
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        **SHAPE, tie_word_embeddings=True))


def texts(count):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
    return [{"input_ids": row, "labels": row} for row in rows]


def trained(run, model, steps=4, arguments=None, **options):
    """The model after some steps of the Trainer, saved at the last one and some before it."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = Trainer(
            model=model, train_dataset=texts(40),
            callbacks=[ckptd.hf.Callback(run, **{"every": 2, **SMALL, **options})],
            args=TrainingArguments(
                output_dir=folder, per_device_train_batch_size=4, max_steps=steps, use_cpu=True,
                learning_rate=1e-2, save_strategy="no", report_to=[], disable_tqdm=True, seed=3,
                **(arguments or {})))
        trainer.train(resume_from_checkpoint=ckptd.hf.resume(trainer))
    return model


def logits(model):
    model.eval()
    with torch.no_grad():
        return model(input_ids=torch.stack([row["input_ids"] for row in texts(3)])).logits


def ckptctl(*arguments):
    """Runs the program; returns its output."""
    done = subprocess.run([_library.program_path("ckptctl"), *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=support.TIMEOUT)
    if done.returncode:
        raise AssertionError(f"ckptctl {arguments[0]}: {done.stdout}")
    return done.stdout


def config_in(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        return json.load(file)


@unittest.skipIf(WHY, WHY)
class Exports(StoreTest):
    def export(self, run, *options):
        """A folder with the newest commit, and what ckptctl said."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name, ckptctl("export", f"{run}@latest", "--out", folder.name, *options)

    def load(self, folder):
        """The model that transformers makes of the folder."""
        model, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        self.assertEqual({key: found for key, found in told.items() if found}, {})
        return model

    def check_export(self, model):
        model = trained(self.tiny, model)
        folder, said = self.export(self.tiny)
        self.assertNotIn("config.json", said)
        loaded = self.load(folder)
        self.assertIs(type(loaded), type(model))
        self.assertTrue(same(logits(loaded), logits(model)))
        with tempfile.TemporaryDirectory() as own:
            model.save_pretrained(own)
            self.assertEqual(config_in(folder), config_in(own))
        return folder, loaded

    def test_an_exported_qwen3_moe_is_the_trained_one(self):
        self.check_export(qwen3_moe())

    def test_an_exported_mixtral_is_the_trained_one(self):
        self.check_export(mixtral())

    def test_an_exported_model_keeps_tied_weights(self):
        folder, loaded = self.check_export(qwen3_tied())
        self.assertIs(loaded.lm_head.weight, loaded.model.embed_tokens.weight)
        # Readers that tie the weights themselves look for one of the two names.
        names = load_file(os.path.join(folder, "model.safetensors"))
        self.assertIn("model.embed_tokens.weight", names)
        self.assertNotIn("lm_head.weight", names)

    def test_an_export_has_the_stale_experts_of_its_view(self):
        before = qwen3_moe()
        model = trained(self.tiny, before, steps=8, experts=1)
        folder, said = self.export(self.tiny)
        self.assertRegex(said, r"units are older than step 8")
        view = qwen3_moe()
        with ckptd.Saver(self.tiny, **SMALL) as saver:
            saver.restore(dict(view.state_dict()), allow=["optim.*", "hf.*"])
        loaded = self.load(folder)
        self.assertTrue(same(logits(loaded), logits(view)))
        stacked = "model.layers.0.mlp.experts.gate_up_proj"
        fresh = [same(*rows) for rows in zip(loaded.state_dict()[stacked],
                                             model.state_dict()[stacked])]
        self.assertIn(True, fresh)
        self.assertIn(False, fresh)

    def test_an_export_has_the_optimizer_if_asked(self):
        model = trained(self.tiny, mixtral())
        names = set(model.state_dict())
        for options, moments in (((), 0), (("--include-optimizer",), 2)):
            folder, _ = self.export(self.tiny, *options)
            found = load_file(os.path.join(folder, "model.safetensors"))
            self.assertEqual({name for name in found if not name.startswith("optim.")}, names)
            for moment in ("exp_avg", "exp_avg_sq")[:moments]:
                for name in names:
                    self.assertEqual(found.pop(f"optim.state.{name}.{moment}").shape,
                                     found[name].shape)
            self.assertEqual([name for name in found if ".exp_avg" in name], [])

    def test_an_import_of_an_export_keeps_the_model(self):
        model = trained(self.tiny, qwen3_moe(), metadata={"data": "books"})
        folder, _ = self.export(self.tiny)
        ckptctl("import", folder, "--run", self.tiny + "-again")
        again, _ = self.export(self.tiny + "-again")
        one, other = (load_file(os.path.join(at, "model.safetensors")) for at in (folder, again))
        self.assertEqual(set(other), set(one))
        self.assertTrue(all(same(other[name], one[name]) for name in one))
        self.assertEqual(config_in(again), config_in(folder))
        self.assertTrue(same(logits(self.load(again)), logits(model)))
        with ckptd.Session(control=True) as session:
            kept = session.query("schema", target=self.tiny)["metadata"]
        self.assertEqual(kept, {"data": "books", "hf_config": config_in(folder)})

    def test_two_ranks_keep_one_config(self):
        def job(rank):
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1")  # never used
            torch.manual_seed(rank)
            model = trained(self.tiny, qwen3_moe(), arguments={
                "ddp_backend": "gloo", "ddp_find_unused_parameters": False})
            wrapped = torch.nn.parallel.DistributedDataParallel(model)
            for one in (wrapped, torch.compile(wrapped)):
                self.assertEqual(ckptd.hf.metadata(one), ckptd.hf.metadata(model))
            return logits(model) if rank == 0 else None
        expected = ranks(2, job)[0]
        folder, _ = self.export(self.tiny)
        self.assertTrue(same(logits(self.load(folder)), expected))

    def test_a_loop_and_a_saver_keep_the_config(self):
        model = qwen3_moe()
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
        with ckptd.Loop(self.tiny, torch.compile(model), optimizer, **SMALL) as loop:
            loop.save(1).durable(support.TIMEOUT)
        with ckptd.Saver(self.tiny + "-saver", metadata=ckptd.hf.metadata(model),
                         **SMALL) as saver:
            saver.save(1, dict(model.state_dict())).durable(support.TIMEOUT)
        for run in (self.tiny, self.tiny + "-saver"):
            folder, _ = self.export(run)
            self.assertTrue(same(logits(self.load(folder)), logits(model)))
            self.assertEqual(config_in(folder)["architectures"], ["Qwen3MoeForCausalLM"])

    def test_a_run_without_its_values_is_no_new_one(self):
        """They are in a blob, which an export leaves out."""
        model = torch.nn.Linear(2, 2)
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        with ckptd.Loop(self.tiny, model, sgd, **SMALL) as loop:
            loop.save(1, more={"text": "x" * (256 << 10)}).durable(support.TIMEOUT)
        folder, _ = self.export(self.tiny, "--resumable")
        ckptctl("import", folder, "--run", self.tiny + "-copy")
        with ckptd.Loop(self.tiny + "-copy", model, sgd, **SMALL) as loop:
            with self.assertRaisesRegex(ckptd.NotFound, "its values are in a blob"):
                loop.restore()

    def test_a_config_that_cannot_be_kept_is_left_out(self):
        for number, odd in enumerate((object(), "x" * (1 << 20))):
            model, run = mixtral(), f"{self.tiny}-{number}"
            model.config.odd = odd
            with self.assertLogs("ckptd.model_config", logging.WARNING) as logged:
                trained(run, model)
            self.assertEqual(len(logged.output), 1)
            self.assertIn("no hf_config", self.export(run)[1])


if __name__ == "__main__":
    unittest.main()
