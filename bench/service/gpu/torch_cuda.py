#!/usr/bin/env python3
"""Stall of ckptd.Saver.save for CUDA tensors, against a copy of the same bytes into pinned memory.

    torch_cuda.py --gib 2 --pairs 12 [--peer-rounds 4] [--store DIR] [--out FILE]

Each pair is one copy and one save, in alternating order, of a state that has changed. A save counts
until it returns, when the state may be overwritten; it is durable before the next one starts. Peers
in the same run: async_save of torch.distributed.checkpoint (DCP) with its default stager, and with
pinned memory that is kept. Prints a summary, and writes the result to --out as JSON. Needs PyTorch
with CUDA, and the package ckptd."""

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time

import ckptd
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import BlockingAsyncStager

TENSOR_BYTES = 64 << 20
TIMEOUT = 300.0


def timed(call):
    """(seconds, result) of a call that starts when the device is idle."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def bootstrap(ratios):
    """95 % interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios)))
                     for _ in range(2000))
    return [round(medians[50], 4), round(medians[1949], 4)]


class State:
    """Weights like those of a model: large matrices, and a small vector beside each."""

    def __init__(self, size):
        self.tensors = {}
        for number in range(max(size // TENSOR_BYTES, 1)):
            self.tensors[f"layers.{number}.weight"] = torch.randn(
                TENSOR_BYTES // 2 // 4096, 4096, dtype=torch.bfloat16, device="cuda")
            self.tensors[f"layers.{number}.norm"] = torch.ones(4096, device="cuda")
        self.bytes = sum(one.numel() * one.element_size() for one in self.tensors.values())
        self._host = {name: torch.empty(one.shape, dtype=one.dtype, pin_memory=True)
                      for name, one in self.tensors.items()}

    def change(self):
        for value in self.tensors.values():
            value.add_(1)

    def copy(self):
        """The limit: nothing but the copy engine."""
        for name, value in self.tensors.items():
            self._host[name].copy_(value, non_blocking=True)
        torch.cuda.synchronize()

    def check(self, found):
        for name, value in self.tensors.items():
            if not torch.equal(value, found[name]):
                raise SystemExit(f"torch_cuda: {name} has come back with other bytes")


def pairs_of(state, saver, count):
    """[(seconds of the copy, seconds of the save)]."""
    found = []
    for step in range(2, count + 2):
        state.change()
        seconds = {}
        for what in ("copy", "save") if step % 2 else ("save", "copy"):
            if what == "copy":
                seconds[what], _ = timed(state.copy)
            else:
                seconds[what], pending = timed(lambda: saver.save(step, state.tensors))
        pending.durable(TIMEOUT)
        found.append((seconds["copy"], seconds["save"]))
    return found


def peer(state, folder, rounds, stager):
    """[(seconds of the copy, seconds until async_save returned)], without a first round."""
    found = []
    for number in range(rounds + 1):
        path = os.path.join(folder, f"dcp-{number}")
        state.change()
        copy, _ = timed(state.copy)
        stall, saved = timed(lambda: dcp.async_save(
            state.tensors, checkpoint_id=path, async_stager=stager))
        saved.result()
        shutil.rmtree(path)
        found.append((copy, stall))
    return found[1:]


def figures(pairs):
    ratios = [stall / copy for copy, stall in pairs]
    return {"seconds": round(statistics.median(stall for _, stall in pairs), 6),
            "ratio": round(statistics.median(ratios), 4), "ratio_interval": bootstrap(ratios),
            "pairs": [[round(one, 6) for one in pair] for pair in pairs]}


def peers(state, folder, rounds):
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
    # DefaultStager of PyTorch 2.11 cannot be used twice, and would pin memory at each save.
    pinned = BlockingAsyncStager(cache_staged_state_dict=True)
    result = {}
    for name, stager in (("dcp_async_default", None), ("dcp_async_pinned", pinned)):
        try:
            result[name] = figures(peer(state, folder, rounds, stager))
        except Exception as error:  # a peer that fails does not take the result along
            result[name] = {"failed": f"{type(error).__name__}: {error}"}
    dist.destroy_process_group()
    return result


def measure(options, folder):
    state = State(int(options.gib * (1 << 30)))
    arena = (state.bytes * 5 // 2 // (64 << 20) + 4) * (64 << 20)
    result = {"bench": "torch_cuda", "device": torch.cuda.get_device_name(),
              "torch": torch.__version__, "cpus": os.cpu_count(), "bytes": state.bytes}
    with ckptd.local(os.path.join(folder, "store"), arena=f"{arena >> 20}MiB"), ckptd.Saver(
            "torch-cuda", arena_bytes=arena, timeout=TIMEOUT, patience=TIMEOUT) as saver:
        state.copy()
        result["first_save_seconds"], pending = timed(lambda: saver.save(1, state.tensors))
        pending.durable(TIMEOUT)
        result["save"] = figures(pairs_of(state, saver, options.pairs))
        found = {name: torch.zeros_like(value) for name, value in state.tensors.items()}
        result["restore_seconds"], _ = timed(lambda: saver.restore(found))
        state.check(found)
    result["copy_seconds"] = statistics.median(copy for copy, _ in result["save"]["pairs"])
    keep(result, options.out)  # peers may take long
    if options.peer_rounds:
        result.update(peers(state, folder, options.peer_rounds))
        keep(result, options.out)
    return result


def keep(result, path):
    if path:
        with open(path, "w", encoding="utf-8") as out:
            json.dump(result, out, indent=1)
            out.write("\n")


def summary(result):
    size = result["bytes"] / 1e9
    copy = result["copy_seconds"]
    yield f"{result['device']}, torch {result['torch']}, {size:.2f} GB"
    yield f"copy into pinned memory: {copy:.4f} s, {size / copy:.1f} GB/s"
    for name in ("save", "dcp_async_default", "dcp_async_pinned"):
        one = result.get(name, {"failed": "was not run"})
        if "failed" in one:
            yield f"{name}: {one['failed']}"
        else:
            low, high = one["ratio_interval"]
            yield (f"{name}: stall {one['seconds']:.4f} s, ratio {one['ratio']:.2f} "
                   f"[{low:.2f}, {high:.2f}] to the copy, {len(one['pairs'])} pairs")
    yield (f"first save with pinning {result['first_save_seconds']:.2f} s; restore "
           f"{result['restore_seconds']:.3f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--gib", type=float, default=2, help="Size of the state in GiB (default 2)")
    parser.add_argument("--pairs", type=int, default=12, help="Pairs of copy and save (default 12)")
    parser.add_argument("--peer-rounds", type=int, default=4,
                        help="Rounds of each setting of DCP (default 4; 0: none)")
    parser.add_argument("--store", help="Folder for a temporary store (default: as TMPDIR says)")
    parser.add_argument("--out", help="File for the result as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.store) as folder:
        result = measure(options, folder)
    print("\n".join(summary(result)))


if __name__ == "__main__":
    main()
