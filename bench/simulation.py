#!/usr/bin/env python3
"""The tables of trainer/simulate/README.md: python3 bench/simulation.py --programs DIR [--spot CSV]

Runs `moetrain simulate` on every scenario, prints the tables and writes all numbers to
bench/results/simulation.json. Without --spot the scenarios on a recorded trace are left out.
"""

import argparse
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ROOT / "trainer/simulate/models"
KINDS = ("train", "checkpoint", "recover", "redo", "idle")

# Name, model, arguments. DeepSeek-V3-like on the spot trace: a node of the trace is 8 machines.
LARGE = ["--nodes", "256", "--repair", "30m", "--duration", "12h", "--exponential"]
SPOT_LARGE = ["--set", "cluster.ranks_per_node=64"]
SCENARIOS = [
    ("GPT-S, 10 nodes until 5 are left, one lost every 5 min", "gpt-s",
     ["--nodes", "10", "--nodes-min", "5", "--mtbf", "5m", "--duration", "30m"]),
    ("GPT-M, the same", "gpt-m",
     ["--nodes", "10", "--nodes-min", "5", "--mtbf", "5m", "--duration", "30m"]),
    ("GPT-L, the same", "gpt-l",
     ["--nodes", "10", "--nodes-min", "5", "--mtbf", "5m", "--duration", "30m"]),
    ("GPT-L, one lost every 40 min", "gpt-l",
     ["--nodes", "10", "--nodes-min", "5", "--mtbf", "40m", "--duration", "4h"]),
    ("GPT-L, P3 spot trace", "gpt-l", None),
    ("DeepSeek-V3-like, 2,048 ranks, one node lost every 5 min on average", "deepseek-v3",
     LARGE + ["--mtbf", "5m"]),
    ("DeepSeek-V3-like, one every 40 min", "deepseek-v3", LARGE + ["--mtbf", "40m"]),
    ("DeepSeek-V3-like, P3 spot trace of 64 ranks a node", "deepseek-v3", None),
]
SCALE = ("10,000 ranks, 64 layers of 256 experts, one node lost every 5 min on average",
         "deepseek-v3",
         ["--set", "model.layers=64", "--nodes", "1250", "--repair", "30m", "--duration", "12h",
          "--exponential", "--mtbf", "5m"])


def arguments_of(scenario, spot):
    name, model, arguments = scenario
    if arguments is None:
        if spot is None:
            return None
        arguments = ["--trace", spot] + (SPOT_LARGE if model == "deepseek-v3" else [])
    return ["--model", str(MODELS / f"{model}.toml")] + arguments


def simulate(program, arguments):
    """The JSON document, and the seconds of processor time it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([program, "simulate", "--json"] + arguments, check=False,
                          stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"moetrain simulate {' '.join(arguments)}: exit {done.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), round(used, 1)


def row(label, policy, total):
    shares = " | ".join(f"{100 * policy['time'][kind] / total:.1f}" for kind in KINDS)
    return (f"| {label} | {policy['checkpoint_steps']} | {policy['goodput']:.2f} "
            f"| {100 * policy['of_ideal']:.0f} | {policy['ettr']:.3f} | {shares} "
            f"| {100 * policy['plt']:.2f} |")


def print_table(title, document, seconds):
    total = document["trace"]["seconds"]
    print(f"\n**{title}** ({total / 60:.0f} min, {seconds} s to simulate)\n")
    print("| policy | every | samples/s | % of ideal | ETTR | " + " | ".join(KINDS) + " | PLT % |")
    print("|---|" + "---:|" * (len(KINDS) + 5))
    for name, policy in document["policies"].items():
        print(row(name, policy, total))
        if policy.get("best", policy)["samples"] > policy["samples"]:
            print(row(f"{name}, best", policy["best"], total))


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file
                        if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", required=True)
    parser.add_argument("--spot", help="a recorded trace: milliseconds,add|remove,node")
    parser.add_argument("--out", default=str(ROOT / "bench/results/simulation.json"))
    parser.add_argument("--svg", help="a folder for the pictures")
    options = parser.parse_args()
    if options.spot:  # the caller's path: ./dev changes the folder
        options.spot = os.path.join(os.environ.get("DEV_CALLED_FROM", "."), options.spot)
    program = os.path.join(options.programs, "moetrain")
    result = {"machine": {"cpu": cpu_name(), "cores": os.cpu_count()}, "scenarios": []}
    for number, scenario in enumerate(SCENARIOS):
        arguments = arguments_of(scenario, options.spot)
        if arguments is None:
            continue
        drawn = ["--svg", f"{options.svg}/scenario-{number}.svg"] if options.svg else []
        document, seconds = simulate(program, arguments + ["--best"] + drawn)
        print_table(scenario[0], document, seconds)
        result["scenarios"].append({"name": scenario[0], "cpu_seconds": seconds, **document})
    document, seconds = simulate(program, arguments_of(SCALE, None))
    print_table(SCALE[0], document, seconds)
    result["scale"] = {"name": SCALE[0], "cpu_seconds": seconds, **document}
    arguments = arguments_of(SCENARIOS[2], None) + ["--policies", "ds,ds-ft,lazarus,ours"]
    document, seconds = simulate(program, arguments + ["--sensitivity"])
    result["sensitivity"] = {"name": SCENARIOS[2][0], **document}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
