#!/usr/bin/env python3
"""Saves and restores through a real ckptd, at a size at which figures mean nothing: that the
benches run, that what comes back is what was saved, and what their documents hold.
disk_bench.py CKPTBENCH"""

import json
import subprocess
import sys
import tempfile

PAIRS, PAIRS_MAX = 11, 13


def measure(program, directory, bench):
    run = subprocess.run(
        [program, bench, "--bytes", "16MiB", "--slab", "4MiB", "--fragment", "1MiB", "--pairs",
         str(PAIRS), "--pairs-max", str(PAIRS_MAX), "--dir", directory, "--json"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{bench}: {run.stderr}"
    return json.loads(run.stdout)


def check_pairs(document):
    """More than PAIRS only where the limit did not repeat itself, and then as many as allowed if it
    never did."""
    made = len(document["runs"])
    assert document["pairs_added"] == made - PAIRS, document
    low, high = document["limit_self_interval"]
    repeats = low >= 0.97 and high <= 1.03
    assert PAIRS <= made <= PAIRS_MAX and (repeats or made == PAIRS_MAX), document


def main():
    program = sys.argv[1]
    for bench in ("save", "restore"):
        with tempfile.TemporaryDirectory(dir=".") as directory:
            document = measure(program, directory, bench)
        assert document["bench"] == bench, document
        assert document["shape"]["bytes"] == 16 << 20, document["shape"]
        check_pairs(document)
        low, high = document["ratio_interval"]
        assert 0 < low <= document["ratio_to_limit"] <= high, document
        assert document["value"] > 0 and document["limit"] > 0, document
        assert document["verdict"] in ("pass", "fail", "inconclusive"), document
        assert document["cpu"]["seconds_per_gb"] > 0, document["cpu"]
        assert document["resident_bytes_peak"] > 16 << 20, document


if __name__ == "__main__":
    main()
