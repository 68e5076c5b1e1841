#!/usr/bin/env python3
"""The tables of sharded systems in trainer/simulate/README.md.

python3 bench/simulation_sharded.py --programs DIR

Runs `moetrain simulate --sharded` on the published setting of LAER-MoE, prints the tables and
writes all numbers to bench/results/simulation-sharded.json.
"""

import argparse
import json
import os
import pathlib
import statistics

from model_tables import print_parameters, read_published
from simulation import cpu_name, simulate

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "trainer/simulate/models/sharded/laer-moe.toml"
PUBLISHED = ROOT / "bench/published"
BASELINES = ("megatron", "fsdp-ep", "flexmoe")
# Qwen-8x7B has the shapes of Mixtral-8x7B.
SHAPE_OF = {"qwen-8x7b-e8k2": "mixtral-8x7b-e8k2", "qwen-8x7b-e16k4": "mixtral-8x7b-e16k4"}
PARTS = ("dense", "experts", "waiting", "all_to_all", "exposed", "other")
# Arm of the ablation -> the published one.
ARMS = {"laer": "laer", "laer, no even scheme": "no_even", "laer, no scheme by load": "no_pq",
        "laer, neither": "no_comm_opt", "fsdp-ep": "fsdp-ep"}
# What a user would ask: heading, settings.
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


def print_steps(shapes):
    print("\n| shape | policy | step s | times laer | " + " | ".join(PARTS)
          + " | max/mean | restored GB |")
    print("|---|---|" + "---:|" * (len(PARTS) + 4))
    for shape, systems in shapes.items():
        for name, one in systems.items():
            parts = " | ".join(f"{one['parts'][part]:.2f}" for part in PARTS)
            print(f"| {shape} | {name} | {one['step_s']:.2f} "
                  f"| {one['step_s'] / systems['laer']['step_s']:.2f} | {parts} "
                  f"| {one['max_over_mean']:.2f} | {one['restore_bytes'] / 1e9:.0f} |")


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


def print_rows(rows):
    print("\n| model | dataset | aux loss | laer, s: published | simulated | "
          + " | ".join(f"{name}: published | simulated" for name in BASELINES) + " |")
    print("|---|---|---:|---:|---:|" + "---:|---:|" * len(BASELINES))
    for row in rows:
        factors = " | ".join(f"{row['published'][name]:.2f} | {row['simulated'][name]:.2f}"
                             for name in BASELINES)
        print(f"| {row['model']} | {row['dataset']} | {row['aux_loss']:g} | {row['laer']:.1f} "
              f"| {row['simulated_laer']:.1f} | {factors} |")


def print_summary(rows):
    print("\n| times laer | published | mean | simulated | mean | same order |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in BASELINES:
        published = [row["published"][name] for row in rows]
        simulated = [row["simulated"][name] for row in rows]
        same = sum((a > 1) == (b > 1) for a, b in zip(published, simulated))
        print(f"| {name} | {min(published):.2f} to {max(published):.2f} "
              f"| {statistics.mean(published):.2f} | {min(simulated):.2f} to {max(simulated):.2f} "
              f"| {statistics.mean(simulated):.2f} | {same} of {len(rows)} |")
    order = sum(sorted(BASELINES, key=lambda n: row["published"][n])
                == sorted(BASELINES, key=lambda n: row["simulated"][n]) for row in rows)
    print(f"\nThe order of all four systems is the published one in {order} of {len(rows)} rows.")


def print_breakdown(shapes):
    print("\n| model | policy | max/mean: published | simulated "
          "| experts, s: published | simulated "
          "| all-to-all with waiting, s: published | simulated "
          "| step, s: published | simulated |")
    print("|---|---|" + "---:|" * 8)
    for row in read_published(PUBLISHED / "laer-moe-breakdown.csv"):
        here = shapes[row["model"]][row["system"]]
        waiting = here["parts"]["waiting"] + here["parts"]["all_to_all"]
        print(f"| {row['model']} | {row['system']} | {row['max_over_mean']:.2f} "
              f"| {here['max_over_mean']:.2f} | {row['experts']:.2f} "
              f"| {here['parts']['experts']:.2f} | {row['all_to_all']:.2f} | {waiting:.2f} "
              f"| {row['step']:.2f} | {here['step_s']:.2f} |")


def print_ablation(arms):
    published = {row["arm"]: row["step"] for row in
                 read_published(PUBLISHED / "laer-moe-ablation.csv")}
    print("\n| arm | step s | more than laer, %: simulated | published | max/mean | exposed s |")
    print("|---|---:|---:|---:|---:|---:|")
    full = arms["laer"]["step_s"]
    for name, one in arms.items():
        known = ARMS.get(name)
        shown = f"{100 * (published[known] / published['laer'] - 1):.1f}" if known else "-"
        print(f"| {name} | {one['step_s']:.2f} | {100 * (one['step_s'] / full - 1):.1f} | {shown} "
              f"| {one['max_over_mean']:.2f} | {one['parts']['exposed']:.2f} |")


def print_sensitivity(rows):
    def factors(row):
        return [row["step_s"][name] / row["step_s"]["laer"] for name in BASELINES]
    given = factors(rows[0])
    names = " | ".join(f"{name} / laer" for name in BASELINES)
    print(f"\n| parameter | times | laer, s | {names} |")
    print("|---|---:|---:|" + "---:|" * len(BASELINES))
    changed = sorted(rows[1:], key=lambda row: -max(abs(a - b) for a, b in
                                                    zip(factors(row), given)))
    for row in rows[:1] + changed:
        cells = " | ".join(f"{factor:.2f}" for factor in factors(row))
        print(f"| `{row['parameter']}` | {row['factor']:g} | {row['step_s']['laer']:.2f} "
              f"| {cells} |")


def print_questions(answers):
    print("\n| Mixtral-8x7B e16k4 | laer, s | fsdp-ep / laer | max/mean: laer | fsdp-ep "
          "| exposed in laer, s |")
    print("|---|---:|---:|---:|---:|---:|")
    for question, systems in answers.items():
        laer, fsdp = systems["laer"], systems["fsdp-ep"]
        print(f"| {question} | {laer['step_s']:.2f} | {fsdp['step_s'] / laer['step_s']:.2f} "
              f"| {laer['max_over_mean']:.2f} | {fsdp['max_over_mean']:.2f} "
              f"| {laer['parts']['exposed']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", required=True)
    parser.add_argument("--out", default=str(ROOT / "bench/results/simulation-sharded.json"))
    options = parser.parse_args()
    program = os.path.join(options.programs, "moetrain")
    print_parameters({"LAER-MoE's setting": MODEL})
    full = run(program, [])
    rows = compare_rows(full["shapes"])
    print_steps(full["shapes"])
    print_rows(rows)
    print_summary(rows)
    print_breakdown(full["shapes"])
    e8k2 = run(program, ["--shape", "mixtral-8x7b-e8k2", "--policies", "laer", "--ablation"])
    print_ablation(e8k2["ablation"]["mixtral-8x7b-e8k2"])
    varied = run(program, ["--policies", "laer,megatron,fsdp-ep,flexmoe", "--sensitivity",
                           "--steps", "3"])
    print_sensitivity(varied["sensitivity"])
    answers = {}
    for question, settings in QUESTIONS:
        arguments = [text for setting in settings for text in ("--set", setting)]
        answers[question] = run(program, ["--shape", "mixtral-8x7b-e16k4", "--policies",
                                          "laer,fsdp-ep"] + arguments)
    answers = {question: one["shapes"]["mixtral-8x7b-e16k4"] for question, one in answers.items()}
    print_questions(answers)
    result = {"machine": {"cpu": cpu_name(), "cores": os.cpu_count()}, "setting": full,
              "rows": rows, "ablation": e8k2["ablation"], "sensitivity": varied["sensitivity"],
              "questions": answers}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
