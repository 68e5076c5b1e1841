"""The Trainer of Hugging Face and Accelerate, saved and resumed through ckptd.hf and ckptd.Loop.

Each training runs in a forked process, which a test can kill. Skipped without transformers."""

import contextlib
import importlib.util
import io
import json
import logging
import os
import signal
import tempfile
import unittest

import pytorch_support as support
from pytorch_support import StoreTest, ranks, torch
from support import ckptd

WHY = "" if all(map(importlib.util.find_spec, ("transformers", "accelerate"))) else (
    "transformers and accelerate are not installed; ./dev python --torch does")
if not WHY:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from ckptd.loop import stored
    import transformers
    from transformers import Trainer, TrainerCallback, TrainingArguments
    logging.getLogger("transformers.trainer").setLevel(logging.ERROR)

# cuda: trainings of one rank run on a GPU, whose losses may differ in their last bits.
USE_CPU = os.environ.get("CKPTD_TEST_DEVICE", "cpu") == "cpu"
LAYERS, EXPERTS, TOP, WIDTH, VOCABULARY, LENGTH = 2, 8, 2, 16, 64, 12
SMALL = {"arena_bytes": 32 << 20, "slab_bytes": 1 << 20, "values_bytes": 64 << 10}


def qwen(**changes):
    """A tiny Qwen3-MoE, the same each time. Dropout makes its losses depend on the RNG."""
    torch.manual_seed(0)
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**{**dict(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=WIDTH, head_dim=8,
        moe_intermediate_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=2,
        num_key_value_heads=2, num_experts=EXPERTS, num_experts_per_tok=TOP,
        max_position_embeddings=32, attention_dropout=0.2), **changes}))


def texts(count):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
    return [{"input_ids": row, "labels": row} for row in rows]


if not WHY:
    class Watch(TrainerCallback):
        """Writes a JSON line per step: its loss, and tokens per expert as the router's logits say,
        by other means than ckptd.hf. Kills its process at a step, once the last save is durable."""

        def __init__(self, path, callback, model, kill=None, stop=None):
            self.path, self.callback, self.kill, self.stop = path, callback, kill, stop
            self.counts = {}
            for layer in range(LAYERS):
                model.model.layers[layer].mlp.gate.register_forward_hook(self.counter(layer))

        def counter(self, layer):
            def hook(module, _, output):
                if module.training:
                    best = output[0].softmax(-1).topk(TOP).indices.flatten().tolist()
                    row = self.counts.setdefault(layer, [0] * EXPERTS)
                    for expert in best:
                        row[expert] += 1
            return hook

        def tell(self, **line):
            with open(self.path, "a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")

        def on_train_begin(self, args, state, control, **_):
            if self.callback.restored is not None:
                self.tell(view=state.global_step, plt=self.callback.saver.plt, versions={
                    unit: found.version.step
                    for unit, found in self.callback.restored.units.items()})

        def on_step_end(self, args, state, control, **_):
            self.tell(step=state.global_step, counts=self.counts)
            self.counts = {}
            if state.global_step == self.kill:
                self.callback.pending.durable()
                os.kill(os.getpid(), signal.SIGKILL)
            if state.global_step == self.stop:
                control.should_training_stop = True

        def on_log(self, args, state, control, logs, **_):
            if "loss" in logs and state.is_world_process_zero:
                self.tell(loss_of=state.global_step, loss=logs["loss"], norm=logs["grad_norm"])


def trained(run, path, kill=None, stop=None, arguments=None, model=None, **options):
    """The script under test: two of its lines are ckptd's."""
    torch.set_num_threads(1)
    model = model or qwen()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        args = TrainingArguments(**{**dict(
            output_dir=folder, per_device_train_batch_size=4, max_steps=20, logging_steps=1,
            learning_rate=1e-2, save_strategy="no", use_cpu=USE_CPU, report_to=[],
            disable_tqdm=True, seed=3), **(arguments or {})})
        callback = ckptd.hf.Callback(run, **{"every": 2, **SMALL, **options})
        trainer = Trainer(model=model, args=args, train_dataset=texts(40),
                          eval_dataset=texts(4), callbacks=[callback])
        trainer.add_callback(Watch(path, callback, model, kill, stop))
        trainer.train(resume_from_checkpoint=ckptd.hf.resume(trainer))
    return trainer


def forked(*arguments, **named):
    """Runs `trained` in a process of its own; returns its exit status, or minus its signal."""
    child = os.fork()
    if not child:
        status = 1
        try:
            trained(*arguments, **named)
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lines(path):
    with open(path, encoding="utf-8") as told:
        return [json.loads(line) for line in told]


def losses(told):
    """{step: (loss, norm)}; a step that was trained twice must say the same twice."""
    found = {}
    for line in told:
        if "loss" in line:
            pair = line["loss"], line["norm"]
            assert found.setdefault(line["loss_of"], pair) == pair, line
    return found


def recount(told):
    """(PLT after each restore, tokens, lost tokens by [layer][expert]) from routing counts alone
    and the versions that came back. An expert holds what it held when its version was saved."""
    def zeros():
        return [[0] * EXPERTS for _ in range(LAYERS)]
    routed, lost, plts = {0: zeros()}, {0: zeros()}, []
    now = 0
    for line in told:
        if "step" in line:
            before, now = now, line["step"]
            routed[now] = [[old + new for old, new in zip(routed[before][layer],
                                                          line["counts"][str(layer)])]
                           for layer in range(LAYERS)]
            lost[now] = lost[before]
        if "view" in line:
            now, after = line["view"], zeros()
            for layer in range(LAYERS):
                for expert in range(EXPERTS):
                    ages = {age for unit, age in line["versions"].items()
                            if f"layers.{layer}.mlp.experts.{expert}" in
                            unit.removesuffix(".optimizer").split("model.", 1)[-1:]}
                    assert len(ages) == 1, ages
                    version = ages.pop()
                    held = routed[version][layer][expert] - lost[version][layer][expert]
                    after[layer][expert] = routed[now][layer][expert] - held
            lost[now] = after
            plts.append(sum(sum(after[layer]) / sum(routed[now][layer])
                            for layer in range(LAYERS)) / LAYERS)
    return plts, routed[now], lost[now]


@unittest.skipIf(WHY, WHY)
class Training(StoreTest):
    def setUp(self):
        self.path = os.path.join(self.folder, self.tiny)

    def test_lost_tokens_after_two_kills_equal_a_recount(self):
        for kill, status in ((9, -9), (15, -9), (None, 0)):
            self.assertEqual(forked(self.tiny, self.path, kill, experts=1,
                                    selector="risk-aware"), status)
        told = lines(self.path)
        self.assertEqual([line["view"] for line in told if "view" in line], [8, 14])
        plts, tokens, lost = recount(told)
        self.assertEqual([line["plt"] for line in told if "view" in line], plts)
        self.assertGreater(plts[1], plts[0])
        self.assertGreater(plts[0], 0.1)
        with ckptd.Session(self.tiny, control=True) as session:
            newest = session.query("log", target=self.tiny)[0]
            layers = session.query("experts", target=self.tiny)["layers"]
        self.assertEqual(newest["step"], 20)
        self.assertEqual([[one["lost_so_far"] for one in layer["experts"]] for layer in layers],
                         lost)
        self.assertEqual(newest["plt"], sum(sum(gone) / sum(all_of) for gone, all_of in zip(
            lost, tokens)) / LAYERS)

    def test_a_killed_training_repeats_the_losses(self):
        # Evaluations draw random numbers; step 10 is the end of an epoch.
        arguments = {"eval_strategy": "steps", "eval_steps": 4}
        other = self.path + "-whole"
        self.assertEqual(forked(self.tiny + "-whole", other, arguments=arguments), 0)
        for kill, status in ((5, -9), (11, -9), (None, 0)):
            self.assertEqual(forked(self.tiny, self.path, kill, arguments=arguments), status)
        told = lines(self.path)
        self.assertEqual([line["view"] for line in told if "view" in line], [4, 10])
        self.assertEqual(losses(told), losses(lines(other)))
        self.assertEqual(len(losses(told)), 20)

    def test_the_trainer_may_write_its_own_folders_too(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = {"output_dir": folder, "save_strategy": "steps", "save_steps": 3,
                         "eval_strategy": "steps", "eval_steps": 3, "max_steps": 9,
                         "load_best_model_at_end": True}
            self.assertEqual(forked(self.tiny, self.path, stop=6, every=None,
                                    arguments=arguments), 0)
            self.assertIn("checkpoint-6", os.listdir(folder))
            trainer = trained(self.tiny, self.path, every=None, arguments=arguments)
            self.assertEqual([line["view"] for line in lines(self.path) if "view" in line], [6])
            self.assertEqual([entry["step"] for entry in trainer.state.log_history
                              if "eval_loss" in entry], [3, 6, 9])
        with ckptd.Session(self.tiny, control=True) as session:
            self.assertEqual([commit["step"] for commit in session.query(
                "log", target=self.tiny)], [9, 6, 3])

    def test_two_ranks_resume_their_own_random_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = {"output_dir": folder, "max_steps": 6, "per_device_train_batch_size": 2,
                         "ddp_backend": "gloo", "ddp_find_unused_parameters": False}

            def job(rank, run, stop):
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1")  # never used
                trained(run, f"{self.path}-{run}-{rank}", stop=stop, arguments=arguments)
            ranks(2, job, self.tiny + "-whole", None)
            for stop in (3, None):
                ranks(2, job, self.tiny, stop)
        whole = lines(f"{self.path}-{self.tiny}-whole-0")
        parts = lines(f"{self.path}-{self.tiny}-0")
        self.assertEqual(losses(parts), losses(whole))
        self.assertEqual(len(losses(parts)), 6)
        with ckptd.Session(self.tiny, control=True) as session:
            self.assertEqual(session.query("log", target=self.tiny)[0]["step"], 6)
        with ckptd.Saver(self.tiny, **SMALL) as saver:
            found = stored(saver, rank=1, size=2)
            other = stored(saver, rank=0, size=1)
        self.assertEqual({layer: sum(counts) for layer, counts in found.tokens.items()},
                         {str(layer): 6 * 4 * LENGTH * TOP for layer in range(LAYERS)})
        self.assertIsNotNone(found.rng)
        self.assertIsNone(other.rng, "of another number of ranks")

    def test_training_over_a_run_with_commits_is_refused(self):
        trained(self.tiny, self.path, arguments={"max_steps": 2})
        callback = ckptd.hf.Callback(self.tiny, **SMALL)
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(qwen(), TrainingArguments(
                output_dir=folder, use_cpu=True, report_to=[], disable_tqdm=True, max_steps=3),
                train_dataset=texts(4), callbacks=[callback])
            with self.assertRaisesRegex(ckptd.FailedPrecondition, r"has step 2.*hf\.resume"):
                trainer.train()

    def test_a_trainer_without_the_callback_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(qwen(), TrainingArguments(
                output_dir=folder, use_cpu=True, report_to=[], fsdp=""))
            with self.assertRaisesRegex(ckptd.InvalidArgument, "no ckptd.hf.Callback"):
                ckptd.hf.resume(trainer)
            trainer.add_callback(ckptd.hf.Callback(self.tiny))
            trainer.args.fsdp = ["full_shard"]
            with self.assertRaisesRegex(ckptd.InvalidArgument, "fsdp"):
                ckptd.hf.resume(trainer)

    def test_recomputed_and_evaluated_tokens_are_not_counted(self):
        for reentrant in (False, True):
            model = qwen()
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            run = f"{self.tiny}-{reentrant}"
            trained(run, self.path, model=model, arguments={
                "max_steps": 2, "eval_strategy": "steps", "eval_steps": 1})
            with ckptd.Saver(run, **SMALL) as saver:
                state = stored(saver)
            self.assertEqual(state.step, 2)
            self.assertEqual({layer: sum(counts) for layer, counts in state.tokens.items()},
                             {str(layer): 2 * 4 * LENGTH * TOP for layer in range(LAYERS)})

    def test_every_forward_of_an_accumulated_step_counts(self):
        trained(self.tiny, self.path, arguments={
            "max_steps": 3, "gradient_accumulation_steps": 2})
        told = [line["counts"] for line in lines(self.path) if "step" in line]
        self.assertEqual(len(told), 3)
        with ckptd.Saver(self.tiny, **SMALL) as saver:
            state = stored(saver)
        for layer in range(LAYERS):
            counted = state.tokens[str(layer)]
            self.assertEqual(sum(counted), state.step * 2 * 4 * LENGTH * TOP)
            self.assertEqual(counted, [sum(step[str(layer)][expert] for step in told[:state.step])
                                       for expert in range(EXPERTS)])


@unittest.skipIf(WHY, WHY)
class Accelerated(StoreTest):
    def loop(self, run, first, last, frozen=True):
        """Losses of these steps, in a loop as Accelerate's users write it."""
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True)
        model = qwen(tie_word_embeddings=True)
        model.model.embed_tokens.weight.requires_grad_(not frozen)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        model, optimizer = accelerator.prepare(model, optimizer)
        said = []
        with ckptd.Loop(run, model, optimizer, scheduler, **SMALL) as loop:
            self.assertEqual((loop.restore().step or 0) + 1, first)
            self.assertEqual(loop.more, {"epoch": first - 1} if first > 1 else {})
            for step in range(first, last + 1):
                rows = torch.randint(0, VOCABULARY, (4, LENGTH))
                loss = model(input_ids=rows, labels=rows).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
                said.append(loss.item())
                loop.save(step, more={"epoch": step}).durable(support.TIMEOUT)
        return said

    def test_a_loop_of_accelerate_repeats_the_losses(self):
        whole = self.loop(self.tiny + "-whole", 1, 4)
        parts = self.loop(self.tiny, 1, 2) + self.loop(self.tiny, 3, 4)
        self.assertEqual(parts, whole)

    def test_an_optimizer_of_other_groups_is_refused(self):
        model = torch.nn.Linear(2, 2)
        with ckptd.Loop(self.tiny, model, torch.optim.SGD(model.parameters(), 0.1),
                        **SMALL) as loop:
            loop.save(1).durable(support.TIMEOUT)
        groups = [{"params": [one]} for one in model.parameters()]
        with ckptd.Loop(self.tiny, model, torch.optim.SGD(groups, 0.1), **SMALL) as loop:
            with self.assertRaisesRegex(ckptd.InvalidArgument, "2 groups .* and 1"):
                loop.restore()


if __name__ == "__main__":
    unittest.main()
