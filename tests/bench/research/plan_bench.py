#!/usr/bin/env python3
"""The table of ckptbench plan, without a trace: plan_bench.py CKPTBENCH [TRACE]"""

import json
import subprocess
import sys


def main():
    trace = ["--loads-file", sys.argv[2]] if len(sys.argv) > 2 else []
    done = subprocess.run([sys.argv[1], "plan", "--every", "30", "--no-times", "--json", *trace],
                          capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert document["bench"] == "plan" and document["machine"], document
    rows = {(row["policy"], row["lag_samples"]): row for row in document["rows"]}
    assert len(rows) == 6 * 3, sorted(rows)
    ours, overlap = rows["frontier", 0], rows["lazarus", 0]
    for mine, theirs in zip(ours["recovery"], overlap["recovery"]):
        assert mine["least"] >= theirs["least"] - 1e-12, (mine, theirs)
        assert mine["probability"] >= theirs["probability"] - 1e-12, (mine, theirs)
    assert ours["max_over_mean"] <= 1.10 and ours["max_over_mean_worst"] <= 1.25, ours
    assert ours["max_over_mean"] < overlap["max_over_mean"], (ours, overlap)
    balances = [point["max_over_mean"] for point in document["frontier"]]
    assert balances == sorted(balances) and len(balances) >= 2, balances
    bad = subprocess.run([sys.argv[1], "plan", "--ranks", "21"], capture_output=True, text=True,
                         check=False)
    assert bad.returncode == 2 and "5 to 20" in bad.stderr, bad


main()
