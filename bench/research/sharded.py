#!/usr/bin/env python3
"""The tables of bench/results/sharded.md: sharded.py [--program CKPTBENCH [ARGS]]

With --program: runs `ckptbench sharded ARGS` and `ckptbench kills --expert-state sharded`, and
writes bench/results/sharded.json and bench/results/kills-sharded.json. Then, and without, writes
the page anew from those files. --check: changes nothing, and exits with 1 if the page differs."""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench/results"

HEAD = """# Sharded experts, measured

Made by `bench/research/sharded.py` from `sharded.json` and `kills-sharded.json`. `./dev sharded`
measures anew and writes it. Real runs of `moetrain`; how values are compared:
[bench](../README.md), How a ratio is made.
"""

ARMS = """## How
`ckptbench sharded`: a round is one run of every arm, in turns, with the same routing. The next
round has other popular experts. The measured steps of a run begin when its arm has its plan.

- **Time.** Median of the rounds. `of laer`: median of the ratios to `laer` in the same round, with
  its 95 % bootstrap interval. Above 1 the arm takes longer than `laer`.
- **Verdict** of a baseline: `pass` where the whole interval is at or above 1, `fail` where it is
  below. `inconclusive`: on both sides, or `laer` leaves 1 +- 3 % of itself. Ablations are
  `measured` only.
- **Lite routing** needs nodes. Two are assumed (`--domains`), with half of the ranks each.
- **Balance.** max/mean: tokens of the busiest rank over the mean, mean of layers and steps.
- **Losses**: an arm whose losses have other bits than those of `laer` is a `fail`, whatever its
  time is.
- **Bytes** are received by all ranks in a step. Experts restored: distinct ones, of a rank in a
  layer.
- **Exposed**: communication of MoE layers that a rank waited for in a step. **Hidden**: that ran
  beside its computation.
- **Layers ahead**: layers whose experts a rank computes between the start of an exchange and the
  wait for it. Mean over the exchanges of the schedule trace; the same on any machine.
- **Memory** of the rank with most. Expert tensors: weights, gradients, moments, buffers. Whole
  rank: its resident memory.
- **Not measured**: LAER-MoE without its even scheme, for which `moetrain run` has no switch
  (`moetrain simulate --sharded --ablation` has).
"""


def run(program, *arguments):
    """The document of ckptbench, with its command; of paths the name alone."""
    done = subprocess.run([program, *arguments, "--json"], check=True, stdout=subprocess.PIPE,
                          text=True)
    document = json.loads(done.stdout)
    told = [pathlib.Path(argument).name for argument in (program, *arguments, "--json")]
    document["command"] = " ".join(told)
    return document


def cells(*texts):
    return "| " + " | ".join(str(text) for text in texts) + " |"


def table(names, rows):
    return [cells(*names), "|---|" + "---:|" * (len(names) - 1), *(cells(*row) for row in rows), ""]


def mb(count):
    return f"{count / 1e6:.1f}"


def machine_of(document):
    on = document["machine"]
    return (f"{on['cpu']}, {on['cores']} cores, {on['memory_bytes'] / 2**30:.0f} GiB, "
            f"{on['file_system']}; `{document['command']}`")


def time_row(row):
    ratio = ""
    if "ratio_to_laer" in row:
        low, high = row["ratio_interval"]
        ratio = f"{row['ratio_to_laer']:.3f} [{low:.3f}, {high:.3f}]"
    exchange = row["exchange"]
    return (f"`{row['arm']}`", row["slots"], f"{row['step_seconds'] * 1e3:.0f}", ratio,
            f"{row['max_over_mean']:.3f}", f"{row['busiest_tokens']:,.0f}",
            f"{exchange['exposed_ms']:.1f}", f"{exchange['hidden_ms']:.1f}",
            f"{exchange['plan_waits']:.1f}", "same bits" if row["same_bits"] else "OTHER BITS",
            row["verdict"])


def byte_row(row):
    exchange, memory = row["exchange"], row["memory"]
    schedule = row.get("schedule")
    ahead = [f"{schedule[kind]['layers_ahead']:.2f}" if schedule else ""
             for kind in ("restores", "reshards")]
    bound = memory.get("expert_bytes_bound")
    return (f"`{row['arm']}`", mb(exchange["token_bytes"]), mb(exchange["restore_bytes"]),
            mb(exchange["reshard_bytes"]),
            f"{exchange['experts_restored']:.2f}" if "experts_restored" in exchange else "",
            *ahead, mb(memory["expert_bytes"]), mb(bound) if bound else "",
            f"{memory['resident_bytes_peak'] / 1e6:.0f}")


def workload_tables(rows, shape):
    first = rows[0]
    lines = [f"### {first['loads']}, {first['ranks']} ranks of {first['slots']} slots, "
             f"{shape['layers']} layers of {first['experts']} experts", ""]
    lines += table(["arm", "slots", "step, ms", "of laer", "max/mean", "busiest rank, tokens",
                    "exposed, ms", "hidden, ms", "plan waits of a run", "losses", "verdict"],
                   [time_row(row) for row in rows])
    lines += table(["arm", "tokens, MB", "restores, MB", "re-shards, MB", "experts restored",
                    "restores: layers ahead", "re-shards: layers ahead", "expert tensors, MB",
                    "their bound, MB", "whole rank, MB"], [byte_row(row) for row in rows])
    return lines


def sharded_part(document):
    shape = document["shape"]
    lines = ["| arm | what |", "|---|---|"]
    seen = {}
    for row in document["rows"]:
        seen.setdefault(row["arm"], row["what"])
    lines += [cells(f"`{arm}`", what) for arm, what in seen.items()]
    lines += ["", "## Steps", f"{machine_of(document)}.",
              f"{document['rounds']} rounds; {shape['tokens_per_step']:,} tokens a step, "
              f"{shape['steps_of_a_run']} measured steps a run after {shape['steps_before']}, "
              f"top-{shape['top_k']}, experts {shape['intermediate']} wide.", "",
              f"**{document['note']}.**", ""]
    if "trace" in document:
        trace = document["trace"]
        lines += [f"The trace is `{trace['file']}`, from sample {trace['first_sample']} of "
                  f"{trace['samples']} on, {trace['steps_per_sample']} steps a sample.", ""]
    workloads = {}
    for row in document["rows"]:
        workloads.setdefault((row["loads"], row["ranks"]), []).append(row)
    for rows in workloads.values():
        lines += workload_tables(rows, shape)
    return lines


def kill_row(row):
    low, high = row["interval"]
    parts = [f"{row['split'][part] * 1e3:.0f}"
             for part in ("detect", "regroup", "plan", "migrate", "first_step")]
    return (f"`{row['arm']}`: {row['what']}", len(row["runs"]),
            f"{row['value'] * 1e3:.0f} [{low * 1e3:.0f}, {high * 1e3:.0f}]", *parts,
            f"{row['step_seconds'] * 1e3:.0f}",
            max(run["steps_redone"] for run in row["runs"]),
            "same bits" if row["same_bits"] else "OTHER BITS", row["verdict"])


def kills_part(document):
    shape = document["shape"]
    lines = ["## From a kill to the next step",
             f"{machine_of(document)}; load before "
             f"{document['machine']['load_average_before']:.1f}.",
             f"{shape['ranks']} ranks of {shape['slots']} slots, {shape['layers']} layers of "
             f"{shape['experts']} experts, `laer`, a checkpoint at every step, killed at a random "
             f"moment of step {shape['killed_in_step']}.", "",
             "- The time ends when every survivor has completed a step that nobody had completed "
             f"before. `one` and `two` must stay below {document.get('limit', 1.0):g} s.",
             "- Survivors return to the newest step that every rank had saved. At most one "
             "completed step may be done again, and no loss may have another bit.", ""]
    return lines + table(["arm, lost", "runs", "to the next step, ms", "detect", "regroup", "plan",
                          "restore", "first step", "step before, ms", "redone at most", "losses",
                          "verdict"], [kill_row(row) for row in document["rows"]])


def page():
    lines = [HEAD, ARMS]
    for name, part in (("sharded.json", sharded_part), ("kills-sharded.json", kills_part)):
        lines += part(read(name)) if (RESULTS / name).exists() else [f"No `{name}` yet.", ""]
    return "\n".join(lines)


def read(name):
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def write(name, document):
    (RESULTS / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", help="ckptbench, to measure anew; takes further arguments of "
                        "`ckptbench sharded`")
    parser.add_argument("--kill-rounds", type=int, default=10, help="0: do not kill (10)")
    parser.add_argument("--check", action="store_true", help="change nothing, compare")
    options, of_bench = parser.parse_known_args()
    if of_bench and not options.program:
        parser.error(f"{of_bench[0]}: only with --program")
    if options.program:
        write("sharded.json", run(options.program, "sharded", *of_bench))
    if options.program and options.kill_rounds > 0:
        write("kills-sharded.json", run(options.program, "kills", "--expert-state", "sharded",
                                        "--rounds", str(options.kill_rounds)))
    target = RESULTS / "sharded.md"
    if options.check:
        same = target.exists() and target.read_text(encoding="utf-8") == page()
        return 0 if same else f"{target}: is not made from the results beside it"
    target.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
