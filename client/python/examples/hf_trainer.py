"""Two lines in a script of Hugging Face's Trainer: a callback, and resume_from_checkpoint.

    python hf_trainer.py            # or torchrun --nproc-per-node 2 hf_trainer.py

A tiny Qwen3-MoE; each save takes 2 of the 8 experts of each layer. Kill it, and start it again.
It needs a ckptd: set CKPTD_SOCKET, or run it in a block of `with ckptd.local("./store")`."""

import os

import ckptd
import torch
from transformers import (Qwen3MoeConfig, Qwen3MoeForCausalLM, Trainer, TrainerCallback,
                          TrainingArguments)

VOCABULARY = 64


class Show(TrainerCallback):
    def on_log(self, args, state, control, logs, **_):
        if "loss" in logs and state.is_world_process_zero:
            print(f"step {state.global_step}: loss {logs['loss']:.6f}", flush=True)
        if state.global_step == int(os.environ.get("STOP", "0")):
            control.should_training_stop = True


def main():
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=32, moe_intermediate_size=32,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
        num_experts=8, num_experts_per_tok=2, attention_dropout=0.1))
    rows = torch.randint(0, VOCABULARY, (64, 16))
    arguments = TrainingArguments(
        output_dir="out", max_steps=6, logging_steps=1, per_device_train_batch_size=4,
        save_strategy="no", use_cpu=True, report_to=[], disable_tqdm=True)
    trainer = Trainer(
        model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        callbacks=[ckptd.hf.Callback("hf-trainer", every=1, experts=2), Show()])
    trainer.train(resume_from_checkpoint=ckptd.hf.resume(trainer))


main()
