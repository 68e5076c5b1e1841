#!/usr/bin/env python3
"""Simulations of failures: python3 bench/research/simulation.py [--programs DIR [--spot CSV]]

With --programs: runs `moetrain simulate` on every scenario and writes all numbers to
bench/results/simulation.json. Without --spot the scenarios on a recorded trace are left out,
without --routing the one that replays a recorded routing. Then, and without --programs, writes the
tables of bench/results/simulation.md from that file. --check: changes nothing, and exits with 1 if
the tables differ, with 77 if nothing was simulated yet.
"""

import argparse
import csv
import gzip
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile

from model_tables import ROOT, write_tables
from simulation_tables import page

MODELS = ROOT / "trainer/simulate/models"

# Name, model, arguments; SPOT stands for --trace and the recorded trace. A node of the trace is 8
# machines of DeepSeek-V3-like.
SPOT = "--spot"
TEN = ["--nodes", "10"]
LOSSES = TEN + ["--nodes-min", "5", "--mtbf", "5m", "--duration", "30m"]
# The paper's intervals of checkpoints are four times as long where failures are rare.
RARE = TEN + ["--nodes-min", "5", "--mtbf", "40m", "--duration", "4h",
              "--set", "intervals.ds_steps=200", "--set", "intervals.ds_ft_steps=1000",
              "--set", "intervals.lazarus_steps=1000"]
WINDOW = [SPOT, "--nodes-max", "10", "--duration", "80m"]
LARGE = ["--nodes", "256", "--repair", "30m", "--duration", "12h", "--exponential"]
SCENARIOS = [
    ("GPT-S, 10 nodes until 5 are left, one lost every 5 min", "gpt-s", LOSSES),
    ("GPT-M, 10 nodes until 5 are left, one lost every 5 min", "gpt-m", LOSSES),
    ("GPT-L, 10 nodes until 5 are left, one lost every 5 min", "gpt-l", LOSSES),
    ("GPT-M, no failure", "gpt-m", TEN + ["--mtbf", "2h", "--duration", "30m"]),
    ("GPT-S, one lost every 40 min, intervals times four", "gpt-s", RARE),
    ("GPT-L, one lost every 40 min, intervals times four", "gpt-l", RARE),
    ("GPT-S, P3 spot trace, first 80 min, at most 10 nodes", "gpt-s", WINDOW),
    ("GPT-L, P3 spot trace, first 80 min, at most 10 nodes", "gpt-l", WINDOW),
    ("GPT-L, P3 spot trace, all of it", "gpt-l", [SPOT]),
    ("DeepSeek-V3-like, 2,048 ranks, one node lost every 5 min on average", "deepseek-v3",
     LARGE + ["--mtbf", "5m"]),
    ("DeepSeek-V3-like, one every 40 min", "deepseek-v3", LARGE + ["--mtbf", "40m"]),
    ("DeepSeek-V3-like, P3 spot trace of 64 ranks a node", "deepseek-v3",
     [SPOT, "--set", "cluster.ranks_per_node=64"]),
]
GPT_L = 2
# Earlier values of GPT-L's model file, before it described the paper's testbed, in the order in
# which they changed.
BEFORE = [
    ("the store: NFS over 10 Gbit/s", {"checkpoint.remote_write_bytes_per_s": 2.5e9,
                                       "checkpoint.remote_read_bytes_per_s": 2.5e9}),
    ("every rank reads its part through it", {"checkpoint.every_rank_reads": 0}),
    ("14 bytes of state a parameter, not 12", {"cluster.bytes_per_parameter": 12}),
    ("two GPUs share a network card; state moves at the paper's rate",
     {"network.all_to_all_bytes_per_s": 10e9, "network.all_reduce_bytes_per_s": 10e9,
      "network.transfer_bytes_per_s": 1.5e9, "checkpoint.peer_bytes_per_s": 5e9}),
    ("the step takes what the paper's throughput without failures says",
     {"compute.dense_us_per_token": 35.8, "compute.expert_us_per_token": 2.36}),
    ("the skew of the recorded routing", {"load.zipf": 1.0}),
    ("joiners wait two minutes", {"recovery.join_wait_s": 30}),
]
FOUR = ["--policies", "ds,ds-ft,lazarus,ours"]
SCALE = ("10,000 ranks, 64 layers of 256 experts, one node lost every 5 min on average",
         "deepseek-v3",
         ["--set", "model.layers=64", "--nodes", "1250", "--repair", "30m", "--duration", "12h",
          "--exponential", "--mtbf", "5m"])


def arguments_of(scenario, spot):
    """None: the scenario needs a recorded trace and there is none."""
    _, model, arguments = scenario
    if SPOT in arguments:
        if spot is None:
            return None
        arguments = ["--trace", spot] + [text for text in arguments if text != SPOT]
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


def goodputs(document):
    return {name: policy["goodput"] for name, policy in document["policies"].items()}


def settings(values):
    return [text for key, value in values.items() for text in ("--set", f"{key}={value:g}")]


def changes(program):
    """From the earlier model file to this one, one change after the other."""
    rows = []
    for changed in range(len(BEFORE) + 1):
        old = {}
        for _, values in BEFORE[changed:]:
            old.update(values)
        document, _ = simulate(program, arguments_of(SCENARIOS[GPT_L], None) + FOUR
                               + settings(old))
        title = BEFORE[changed - 1][0] if changed > 0 else "the earlier model file"
        rows.append({"name": title, "goodput": goodputs(document)})
    return rows


def popular_experts(source, experts, target):
    """A routing trace of the `experts` most popular experts of each layer of another."""
    opened = gzip.open if source.endswith(".gz") else open
    with opened(source, "rt", encoding="utf-8") as file:
        rows = [[int(value) for value in row] for row in list(csv.reader(file))[1:]]
    totals = {}
    for _, layer, *tokens in rows:
        sums = totals.setdefault(layer, [0] * len(tokens))
        for expert, count in enumerate(tokens):
            sums[expert] += count
    chosen = {layer: sorted(range(len(sums)), key=lambda e: -sums[e])[:experts]
              for layer, sums in totals.items()}
    with open(target, "w", encoding="utf-8") as file:
        file.write("iteration,layer," + ",".join(f"e{e}" for e in range(experts)) + "\n")
        for iteration, layer, *tokens in rows:
            kept = ",".join(str(tokens[e]) for e in chosen[layer])
            file.write(f"{iteration},{layer},{kept}\n")


def replayed(program, routing):
    """The recorded routing itself, as the paper replays it, instead of a skew."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model, experts in (("gpt-s", 8), ("gpt-m", 12), ("gpt-l", 16)):
            trace = os.path.join(folder, f"{model}.csv")
            popular_experts(routing, experts, trace)
            document, _ = simulate(program, arguments_of((model, model, LOSSES), None) + FOUR
                                   + ["--routing", trace])
            rows.append({"model": model, "goodput": goodputs(document)})
    return rows


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file
                        if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def scenarios(program, options):
    done = []
    for number, scenario in enumerate(SCENARIOS):
        arguments = arguments_of(scenario, options.spot)
        if arguments is None:
            continue
        print(f"simulation: {scenario[0]}", file=sys.stderr)
        drawn = ["--svg", f"{options.svg}/scenario-{number}.svg"] if options.svg else []
        document, seconds = simulate(program, arguments + ["--best"] + drawn)
        done.append({"name": scenario[0], "cpu_seconds": seconds, **document})
    return done


def callers_path(path):
    """./dev changes the folder."""
    return path and os.path.join(os.environ.get("DEV_CALLED_FROM", "."), path)


def measure(program, options):
    result = {"machine": {"cpu": cpu_name(), "cores": os.cpu_count()},
              "scenarios": scenarios(program, options)}
    document, seconds = simulate(program, arguments_of(SCALE, None))
    result["scale"] = {"name": SCALE[0], "cpu_seconds": seconds, **document}
    result["changes"] = changes(program)
    if options.routing:
        result["replayed"] = replayed(program, callers_path(options.routing))
    document, _ = simulate(program, arguments_of(SCENARIOS[GPT_L], None) + FOUR
                           + ["--sensitivity"])
    result["sensitivity"] = {"name": SCENARIOS[GPT_L][0], **document}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", help="the folder of moetrain, to simulate anew")
    parser.add_argument("--spot", help="a recorded trace: milliseconds,add|remove,node")
    parser.add_argument("--routing", help="a recorded routing: iteration,layer,e0,...; may be gzip")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/simulation.json")
    parser.add_argument("--svg", help="a folder for the pictures")
    parser.add_argument("--check", action="store_true", help="change nothing, compare")
    options = parser.parse_args()
    if options.programs:
        options.spot = callers_path(options.spot)
        result = measure(os.path.join(options.programs, "moetrain"), options)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return write_tables(options.out, page, options.check)


if __name__ == "__main__":
    sys.exit(main())
