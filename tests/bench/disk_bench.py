#!/usr/bin/env python3
"""Saves and restores through a real ckptd, at a size at which figures mean nothing: that the
benches run, that what comes back is what was saved, and what their documents hold.
disk_bench.py CKPTBENCH"""

import json
import subprocess
import sys
import tempfile

PAIRS = 11


def measure(program, directory, bench):
    run = subprocess.run(
        [program, bench, "--bytes", "16MiB", "--slab", "4MiB", "--fragment", "1MiB", "--pairs",
         str(PAIRS), "--dir", directory, "--json"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{bench}: {run.stderr}"
    return json.loads(run.stdout)


def main():
    program = sys.argv[1]
    for bench in ("save", "restore"):
        with tempfile.TemporaryDirectory(dir=".") as directory:
            document = measure(program, directory, bench)
        assert document["bench"] == bench, document
        assert document["shape"]["bytes"] == 16 << 20, document["shape"]
        assert len(document["runs"]) == PAIRS, document["runs"]
        low, high = document["ratio_interval"]
        assert 0 < low <= document["ratio_to_limit"] <= high, document
        assert document["value"] > 0 and document["limit"] > 0, document
        assert document["verdict"] in ("pass", "fail", "inconclusive"), document
        assert document["cpu"]["seconds_per_gb"] > 0, document["cpu"]
        assert document["resident_bytes_peak"] > 16 << 20, document


if __name__ == "__main__":
    main()
