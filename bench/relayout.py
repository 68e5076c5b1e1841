#!/usr/bin/env python3
"""The tables of trainer/placement/README.md: relayout.py [--program CKPTBENCH [--loads-file FILE]]

With --program: runs `ckptbench relayout` and writes bench/results/relayout.json. Then, and without,
writes the tables between the markers of the README anew from that file. --check: changes nothing,
and exits with 1 if they differ, with 77 if nothing was measured yet."""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = 77  # for ctest
BEGIN, END = "<!-- relayout: begin -->", "<!-- relayout: end -->"
POLICIES = ("static", "eplb", "laer, published", "laer", "frontier")


def measure(program, loads_file):
    arguments = ["--loads-file", loads_file, "--layers-every", "4"] if loads_file else []
    done = subprocess.run([program, "relayout", "--json", *arguments], check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def cells(*texts):
    return "| " + " | ".join(str(text) for text in texts) + " |"


def head(*names):
    return [cells(*names), "|" + "---|" * len(names)]


def ranks_of(row):
    nodes = f" in {row['nodes']} nodes" if row["nodes"] > 1 else ""
    return f"{row['ranks']}{nodes}"


def shape_of(row):
    drifts = row["loads"] == "trace"
    return (f"{row['loads']}, {row['steps_per_sample']} steps" if drifts else row["loads"],
            row["experts"], ranks_of(row), row["slots_per_rank"], row["top_k"],
            f"{row['tokens_per_rank']:,}")


def balance_table(rows):
    shapes = {}
    for row in rows:
        shapes.setdefault(shape_of(row), {})[row["policy"]] = row
    lines = head("loads", "experts", "ranks", "slots", "top-k", "tokens a rank", *POLICIES,
                 "bound", "`laer`: other nodes", "`laer`: restored")
    for shape, of_policy in shapes.items():
        ratios = [f"{of_policy[policy]['max_over_mean']:.3f}" if policy in of_policy else ""
                  for policy in POLICIES]
        laer = of_policy["laer"]
        bound = f"{laer['bound']}: {laer['verdict']}" if "bound" in laer else ""
        lines.append(cells(*shape, *ratios, bound, f"{100 * laer['between_nodes']:.1f} %",
                           f"{laer['restored']:.1f}"))
    return lines


def time_table(rows):
    lines = head("ranks", "slots", "published candidates, ms a layer", "`laer`, ms a layer",
                 "`laer`, ms for 24 layers", "LAER-MoE, ms")
    shapes = {}
    for row in rows:
        shapes.setdefault((ranks_of(row), row["slots_per_rank"]), {})[row["policy"]] = row
    for shape, of_policy in shapes.items():
        laer = of_policy["laer"]
        least, most = laer["published_ms"]
        lines.append(cells(*shape, f"{of_policy['laer, published']['cpu_ms_per_layer']:.3f}",
                           f"{laer['cpu_ms_per_layer']:.3f}", f"{laer['cpu_ms']:.1f}",
                           f"{least:g}-{most:g}"))
    return lines


def tables(document):
    cpu = document["machine"]["cpu"]
    lines = ["", *balance_table(document["rows"]), "",
             f"Planning, 32 experts, one core ({cpu}):", "", *time_table(document["planning"]), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", help="ckptbench, to measure anew")
    parser.add_argument("--loads-file", help="a trace of routing counts, CSV, may be gzipped")
    parser.add_argument("--check", action="store_true", help="change nothing, compare")
    options = parser.parse_args()
    results = ROOT / "bench/results/relayout.json"
    if options.check and not results.exists():
        print(f"skipped: no {results}; ./dev relayout measures")
        return SKIPPED
    if options.program:
        document = measure(options.program, options.loads_file)
        results.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    readme = ROOT / "trainer/placement/README.md"
    text = readme.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{readme}: must have the lines {BEGIN} and {END} once")
    before, rest = text.split(BEGIN)
    new = before + BEGIN + "\n" + tables(json.loads(results.read_text(encoding="utf-8"))) + END \
        + rest.split(END)[1]
    if options.check:
        return 0 if new == text else f"{readme}: its tables are not those of {results}"
    readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
