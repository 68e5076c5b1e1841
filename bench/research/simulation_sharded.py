#!/usr/bin/env python3
"""Simulations of sharded experts: python3 bench/research/simulation_sharded.py [--programs DIR]

With --programs: runs `moetrain simulate --sharded` on the published setting of LAER-MoE and writes
all numbers to bench/results/simulation-sharded.json. Then, and without, writes the tables of
bench/results/simulation-sharded.md from that file. --check: changes nothing, and exits with 1 if
the tables differ, with 77 if nothing was simulated yet.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from model_tables import ROOT, cells, head, parameter_table, read_published, write_tables
from simulation import cpu_name, simulate

MODEL = ROOT / "trainer/simulate/models/sharded/laer-moe.toml"
PUBLISHED = ROOT / "bench/research/published"
BASELINES = ("megatron", "fsdp-ep", "flexmoe")
# Qwen-8x7B has the shapes of Mixtral-8x7B.
SHAPE_OF = {"qwen-8x7b-e8k2": "mixtral-8x7b-e8k2", "qwen-8x7b-e16k4": "mixtral-8x7b-e16k4"}
PARTS = ("dense", "experts", "waiting", "all_to_all", "exposed", "other")
# Arm of the ablation -> the published one.
ARMS = {"laer": "laer", "laer, no even scheme": "no_even", "laer, no scheme by load": "no_pq",
        "laer, neither": "no_comm_opt", "fsdp-ep": "fsdp-ep"}
# Questions a user would ask: heading, settings.
QUESTIONS = (
    ("as published", []),
    ("no skew and no noise", ["shape.zipf=0", "load.sequence_noise=0"]),
    ("no skew", ["shape.zipf=0"]),
    ("half the noise", ["load.sequence_noise=0.6"]),
    ("twice the slots", ["shape.slots=8"]),
    ("micro-batches of one sequence", ["training.sequences_per_rank=1"]),
    ("sequences of 2,048 tokens", ["training.sequence_tokens=2048"]),
    ("a quarter of the bandwidth between nodes", ["network.between_bytes_per_s=22.2e9"]),
    ("four times the bandwidth between nodes", ["network.between_bytes_per_s=356e9"]),
)


def run(program, arguments):
    document, seconds = simulate(program, ["--sharded", "--model", str(MODEL)] + arguments)
    document["cpu_seconds"] = seconds
    return document


def step_table(shapes):
    lines = head("shape", "policy", "step s", "times laer", *PARTS, "max/mean", "restored GB",
                 left=2)
    for shape, systems in shapes.items():
        for name, one in systems.items():
            lines.append(cells(shape, name, f"{one['step_s']:.2f}",
                               f"{one['step_s'] / systems['laer']['step_s']:.2f}",
                               *(f"{one['parts'][part]:.2f}" for part in PARTS),
                               f"{one['max_over_mean']:.2f}",
                               f"{one['restore_bytes'] / 1e9:.0f}"))
    return lines


def compare_rows(shapes):
    """Published and simulated factors over laer, one row for each published configuration."""
    rows = []
    for row in read_published(PUBLISHED / "laer-moe.csv"):
        here = shapes[SHAPE_OF.get(row["model"], row["model"])]
        rows.append({**row, "simulated_laer": here["laer"]["step_s"],
                     "published": {name: row[name] / row["laer"] for name in BASELINES},
                     "simulated": {name: here[name]["step_s"] / here["laer"]["step_s"]
                                   for name in BASELINES}})
    return rows


def row_table(rows):
    lines = head("model", "dataset", "aux loss", "laer, s: published", "simulated",
                 *(text for name in BASELINES for text in (f"{name}: published", "simulated")),
                 left=2)
    for row in rows:
        factors = [f"{row[kind][name]:.2f}" for name in BASELINES
                   for kind in ("published", "simulated")]
        lines.append(cells(row["model"], row["dataset"], f"{row['aux_loss']:g}",
                           f"{row['laer']:.1f}", f"{row['simulated_laer']:.1f}", *factors))
    return lines


def summary(rows):
    lines = head("times laer", "published", "mean", "simulated", "mean", "slower than laer in both")
    for name in BASELINES:
        published = [row["published"][name] for row in rows]
        simulated = [row["simulated"][name] for row in rows]
        same = sum((a > 1) == (b > 1) for a, b in zip(published, simulated))
        lines.append(cells(name, f"{min(published):.2f} to {max(published):.2f}",
                           f"{statistics.mean(published):.2f}",
                           f"{min(simulated):.2f} to {max(simulated):.2f}",
                           f"{statistics.mean(simulated):.2f}", f"{same} of {len(rows)}"))
    order = sum(sorted(BASELINES, key=lambda n: row["published"][n])
                == sorted(BASELINES, key=lambda n: row["simulated"][n]) for row in rows)
    return [*lines, "",
            f"The order of all four systems is the published one in {order} of {len(rows)} rows."]


def breakdown(shapes):
    lines = head("model", "policy", "max/mean: published", "simulated", "experts, s: published",
                 "simulated", "all-to-all with waiting, s: published", "simulated",
                 "step, s: published", "simulated", left=2)
    for row in read_published(PUBLISHED / "laer-moe-breakdown.csv"):
        here = shapes[row["model"]][row["system"]]
        pairs = ((row["max_over_mean"], here["max_over_mean"]),
                 (row["experts"], here["parts"]["experts"]),
                 (row["all_to_all"], here["parts"]["waiting"] + here["parts"]["all_to_all"]),
                 (row["step"], here["step_s"]))
        lines.append(cells(row["model"], row["system"],
                           *(f"{value:.2f}" for pair in pairs for value in pair)))
    return lines


def ablation_table(arms):
    published = {row["arm"]: row["step"] for row in
                 read_published(PUBLISHED / "laer-moe-ablation.csv")}
    lines = head("arm", "step s", "more than laer, %: simulated", "published", "max/mean",
                 "exposed s")
    full = arms["laer"]["step_s"]
    for name, one in arms.items():
        known = ARMS.get(name)
        shown = f"{100 * (published[known] / published['laer'] - 1):.1f}" if known else "-"
        lines.append(cells(name, f"{one['step_s']:.2f}", f"{100 * (one['step_s'] / full - 1):.1f}",
                           shown, f"{one['max_over_mean']:.2f}", f"{one['parts']['exposed']:.2f}"))
    return lines


def sensitivity(rows):
    def factors(row):
        return [row["step_s"][name] / row["step_s"]["laer"] for name in BASELINES]

    given = factors(rows[0])
    lines = head("parameter", "times", "laer, s", *(f"{name} / laer" for name in BASELINES))
    changed = sorted(rows[1:], key=lambda row: -max(abs(a - b) for a, b in
                                                    zip(factors(row), given)))
    for row in rows[:1] + changed:
        lines.append(cells(f"`{row['parameter']}`", f"{row['factor']:g}",
                           f"{row['step_s']['laer']:.2f}",
                           *(f"{factor:.2f}" for factor in factors(row))))
    return lines


def question_table(answers):
    lines = head("Mixtral-8x7B e16k4", "laer, s", "fsdp-ep / laer", "max/mean: laer", "fsdp-ep",
                 "exposed in laer, s")
    for question, systems in answers.items():
        laer, fsdp = systems["laer"], systems["fsdp-ep"]
        lines.append(cells(question, f"{laer['step_s']:.2f}",
                           f"{fsdp['step_s'] / laer['step_s']:.2f}", f"{laer['max_over_mean']:.2f}",
                           f"{fsdp['max_over_mean']:.2f}", f"{laer['parts']['exposed']:.2f}"))
    return lines


HEADING = """# Simulated steps with sharded experts

Generated by `./dev simulate sharded` from simulation-sharded.json. What the systems are, and how
far to trust the numbers: [docs/simulator.md](../../docs/simulator.md#steps-with-sharded-experts).

Published times are those of LAER-MoE's artifact (arXiv:2602.11686):
[published](../research/published). One skew for e8k2 and one for e16k4 are fitted, to one published
number each. Datasets, the auxiliary loss and Qwen-8x7B, which has the shapes of Mixtral-8x7B,
change nothing in the simulation.
"""
ABLATION = """
## Ablation

Mixtral-8x7B e8k2. "neither": prefetch 1 and re-shard inline.
"""
SENSITIVITY = """
## Sensitivity

Each parameter at half and at one and a half times its value; the mean of the four shapes.
"""
PARAMETERS = """
## Parameters

"artifact" is PKU-DAIR/Hetu-Galvatron, branch `laer-moe`; "profile" two files of measurements in it.
"""


def page(document):
    setting = document["setting"]
    return [HEADING, "## Published and simulated, relative to laer", "", *summary(document["rows"]),
            "", "## Every published row", "", *row_table(document["rows"]),
            "", "## Parts of the published steps", "", *breakdown(setting["shapes"]),
            "", "## Parts of the simulated steps", "", *step_table(setting["shapes"]),
            "", "## Other settings", "", *question_table(document["questions"]),
            ABLATION, *ablation_table(document["ablation"]["mixtral-8x7b-e8k2"]),
            SENSITIVITY, *sensitivity(document["sensitivity"]),
            PARAMETERS, *parameter_table({"LAER-MoE's setting": MODEL})]


def measure(program):
    full = run(program, [])
    e8k2 = run(program, ["--shape", "mixtral-8x7b-e8k2", "--policies", "laer", "--ablation"])
    varied = run(program, ["--policies", "laer,megatron,fsdp-ep,flexmoe", "--sensitivity",
                           "--steps", "3"])
    answers = {}
    for question, settings in QUESTIONS:
        arguments = [text for setting in settings for text in ("--set", setting)]
        one = run(program, ["--shape", "mixtral-8x7b-e16k4", "--policies", "laer,fsdp-ep"]
                  + arguments)
        answers[question] = one["shapes"]["mixtral-8x7b-e16k4"]
    return {"machine": {"cpu": cpu_name(), "cores": os.cpu_count()}, "setting": full,
            "rows": compare_rows(full["shapes"]), "ablation": e8k2["ablation"],
            "sensitivity": varied["sensitivity"], "questions": answers}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", help="the folder of moetrain, to simulate anew")
    parser.add_argument("--out", type=pathlib.Path,
                        default=ROOT / "bench/results/simulation-sharded.json")
    parser.add_argument("--check", action="store_true", help="change nothing, compare")
    options = parser.parse_args()
    if options.programs:
        result = measure(os.path.join(options.programs, "moetrain"))
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return write_tables(options.out, page, options.check)


if __name__ == "__main__":
    sys.exit(main())
