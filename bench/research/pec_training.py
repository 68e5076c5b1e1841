#!/usr/bin/env python3
"""Effect of lost tokens on the loss: ./dev experiment, or pec_training.py --programs FOLDER

Trains the same model on the same text in four arms, for every seed:
  none    full checkpoints, no faults
  full    full checkpoints; ranks are killed
  budget  partial checkpoints (K=1 of 8, one every step) within a PLT budget of 3.75 %; killed alike
  far     partial checkpoints (K=1 of 8, one every 8 steps) without a budget; killed alike
Reports, per arm, the loss on held-out text at the end and the loss of the first step after each
recovery, less what `none` had with the same seed at the same step. Intervals are Student's, 95 %,
over seeds. Every result is reported.
"""

import argparse
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

# Two-sided 95 % quantile of Student's t by degrees of freedom.
STUDENT = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 11: 2.201, 14: 2.145,
           19: 2.093}
PARTIAL = ["--experts-per-checkpoint", "1"]
ARMS = {
    "none": {"flags": ["--checkpoint-every", "8"], "faults": False},
    "full": {"flags": ["--checkpoint-every", "8"], "faults": True},
    "budget": {"flags": ["--checkpoint-every", "1", "--plt-budget", "0.0375"] + PARTIAL,
               "faults": True},
    "far": {"flags": ["--checkpoint-every", "8", "--plt-budget", "1"] + PARTIAL, "faults": True},
}


def interval(values):
    """Mean and half width of the 95 % interval over seeds."""
    mean = statistics.fmean(values)
    quantile = STUDENT[max(df for df in STUDENT if df <= len(values) - 1)]
    half_width = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": mean, "half_width": half_width, "values": values}


def faults(seed, args):
    """RANK@STEP of each kill, spread over the last two thirds: each recovery has time to show."""
    rng = random.Random(seed)
    first, room = args.steps // 3, args.steps - args.steps // 3
    each = room // args.faults
    return [f"{rng.randrange(args.ranks)}@{first + i * each + rng.randrange(each // 2) + 1}"
            for i in range(args.faults)]


class Daemon:
    def __init__(self, args, folder):
        self.socket = os.path.join(folder, "s")
        self.log = open(os.path.join(folder, "ckptd.log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [os.path.join(args.programs, "ckptd"), "--data", os.path.join(folder, "data"),
             "--listen", "unix:" + self.socket], stdout=self.log, stderr=self.log)

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.close()


def run(command, timeout_s):
    """Returns the stdout of the command; if it fails, exits with the end of its stderr."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {ended.returncode}\n{ended.stderr[-4000:]}")
    return ended.stdout


def cpu_name():
    """CPU model from /proc/cpuinfo: the architecture alone says nothing of speed."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def train(args, folder, socket, arm, seed):
    name = f"{arm}-{seed}"
    metrics, report = (os.path.join(folder, f"{name}.{part}") for part in ("metrics", "report"))
    program = os.path.join(args.programs, "moetrain")
    data = ["--data", *args.data] if args.data else []
    command = [program, "run", "--run", name, "--socket", socket, "--metrics", metrics, "--report",
               report, "--ranks", str(args.ranks), "--steps", str(args.steps), "--lr-steps",
               str(args.steps), "--seed", str(seed), *ARMS[arm]["flags"], *data]
    if ARMS[arm]["faults"]:
        for fault in faults(seed, args):
            command += ["--kill", fault]
        command += ["--on-loss", "restart"]  # the same rank may be drawn again
    run(command, args.timeout_s)
    evaluated = run([program, "eval", name, "--socket", socket, "--sequences", "64", "--json",
                     *data], args.timeout_s)
    with open(metrics, encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if "step" in line]
    with open(report, encoding="utf-8") as file:
        plt = json.load(file)["plt"]
    return {"held_out_loss": json.loads(evaluated)["loss"], "plt": plt,
            "losses": {line["step"]: line["loss"] for line in lines},
            "after_recovery": [(line["step"], line["loss"]) for line in lines
                               if "resumed_at" in line]}


def summary(runs, seeds):
    arms = {}
    for arm in ARMS:
        of_arm = [runs[arm, seed] for seed in seeds]
        after = [[loss - runs["none", seed]["losses"][step]
                  for step, loss in runs[arm, seed]["after_recovery"]] for seed in seeds]
        arms[arm] = {
            "flags": ARMS[arm]["flags"],
            "held_out_loss": interval([run["held_out_loss"] for run in of_arm]),
            "held_out_loss_less_none": interval(
                [run["held_out_loss"] - runs["none", seed]["held_out_loss"]
                 for run, seed in zip(of_arm, seeds)]),
            "plt": interval([run["plt"] for run in of_arm]),
            "recoveries": sum(map(len, after)),
        }
        if all(after):
            arms[arm]["first_loss_after_recovery_less_none"] = interval(
                [statistics.fmean(each) for each in after])
    return arms


def print_table(document):
    print(f"{'arm':8}{'PLT':>9}  held-out loss          less none              after a recovery")
    for arm, of_arm in document["arms"].items():
        def text(name, of_arm=of_arm):
            value = of_arm.get(name)
            return f"{value['mean']:8.4f} +- {value['half_width']:.4f}" if value else "-"
        print(f"{arm:8}{100 * of_arm['plt']['mean']:7.2f} %  {text('held_out_loss'):22} "
              f"{text('held_out_loss_less_none'):22} "
              f"{text('first_loss_after_recovery_less_none')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="build/release/bin", help="folder of the programs")
    parser.add_argument("--data", nargs="*", default=[], help="text; default: moetrain's own")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--faults", type=int, default=4, help="of each run that has any")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--timeout-s", type=int, default=600, help="of one run")
    parser.add_argument("--out", default="bench/results/pec-training.json")
    args = parser.parse_args()
    if args.seeds < 5 or args.faults < 1 or args.steps < 12 * args.faults:
        parser.error("at least 5 seeds, a fault, and 12 steps for each fault")
    began, runs, seeds = time.monotonic(), {}, list(range(1, args.seeds + 1))
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(args, folder)
        try:
            for seed in seeds:
                for arm in ARMS:
                    runs[arm, seed] = train(args, folder, daemon.socket, arm, seed)
                    print(f"seed {seed} {arm}: held-out {runs[arm, seed]['held_out_loss']:.4f}",
                          file=sys.stderr)
        finally:
            daemon.close()
    document = {
        "bench": "pec-training",
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(),
                    "kernel": platform.release()},
        "shape": {"model": "tiny (2 layers of 8 experts, top-2)", "ranks": args.ranks,
                  "steps": args.steps, "faults": args.faults, "seeds": seeds,
                  "text": [os.path.basename(path) for path in args.data] or "our sources"},
        "seconds": round(time.monotonic() - began), "arms": summary(runs, seeds)}
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
        file.write("\n")
    print_table(document)


if __name__ == "__main__":
    main()
