"""Bounds of plans for every step: relayout_bounds.py CKPTBENCH [TRACE.csv.gz]

With a trace: on the routing of a real model. CKPT_ROUTING_TRACE names another place for it; where
it is not there this exits with 77, which counts as skipped. The figures are the same anywhere.
"""

import json
import os
import subprocess
import sys

SKIPPED = 77


def run(program, *arguments):
    return subprocess.run([program, "relayout", *arguments], capture_output=True, text=True,
                          check=False)


def main(program, trace=None):
    arguments = ["--bounded-only", "--no-times", "--json"]
    if trace is not None:
        trace = os.environ.get("CKPT_ROUTING_TRACE") or trace
        if not os.path.exists(trace):
            print(f"skipped: no trace at {trace} (CKPT_ROUTING_TRACE names another place)")
            return SKIPPED
        arguments += ["--loads-file", trace, "--layers-every", "8"]
    done = run(program, *arguments)
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert document["bench"] == "relayout" and document["machine"], document
    rows = [row for row in document["rows"] if row["loads"] == ("trace" if trace else "Zipf 1.2")]
    assert len(rows) >= 4 and {row["nodes"] for row in rows} == {1, 2}, rows
    for row in rows:
        assert row["policy"] == "laer" and row["verdict"] == "pass", row
        assert row["max_over_mean"] <= 1.15, row
        assert row["between_nodes"] <= 0.15 * (row["nodes"] - 1), row
    bad = run(program, "--layers-every", "0")
    assert bad.returncode == 2 and "at least 1" in bad.stderr, bad
    print("the busiest rank stays within its bound")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
