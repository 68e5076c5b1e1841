#!/usr/bin/env python3
"""Saves and restores through a real ckptd, at a size at which figures mean nothing. Checks that the
benches run, that restored bytes equal the saved bytes, and the content of their documents.
disk_bench.py CKPTBENCH"""

import json
import statistics
import subprocess
import sys
import tempfile

PAIRS, PAIRS_MAX = 11, 13
VERDICTS = ("pass", "fail", "inconclusive")


def measure(program, directory, bench, *flags):
    run = subprocess.run(
        [program, bench, "--bytes", "16MiB", "--slab", "4MiB", "--fragment", "1MiB", "--pairs",
         str(PAIRS), "--pairs-max", str(PAIRS_MAX), "--dir", directory, *flags],
        capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{bench}: {run.stderr}"
    return run.stdout


def check_pairs(document):
    """More than PAIRS runs only if the limit was not repeatable; as many as allowed if it never
    became repeatable."""
    made = len(document["runs"])
    assert document["pairs_added"] == made - PAIRS, document
    low, high = document["limit_self_interval"]
    repeats = low >= 0.97 and high <= 1.03
    assert PAIRS <= made <= PAIRS_MAX and (repeats or made == PAIRS_MAX), document


def check_cpu(document):
    """A loop, a CRC pass and a save for each pair, and a verdict of their own."""
    cpu = document["cpu"]
    assert len(cpu["runs"]) == len(document["runs"]), cpu
    for run in cpu["runs"]:
        assert run["limit"] > 0 and run["crc"] > 0 and run["value"] > 0, run
        ratio = run["value"] / (run["limit"] + run["crc"])
        assert abs(run["ratio"] / ratio - 1) < 1e-9, run
    ratios = [run["ratio"] for run in cpu["runs"]]
    assert abs(cpu["ratio"] / statistics.median(ratios) - 1) < 1e-9, cpu
    assert cpu["ratio_to_limit_and_crc"] == cpu["ratio"], cpu
    low, high = cpu["ratio_interval"]
    assert min(ratios) <= low <= cpu["ratio"] <= high <= max(ratios), cpu
    assert cpu["pass_ratio"] == 1.5 and cpu["verdict"] in VERDICTS, cpu
    for what in ("limit_seconds_per_gb", "crc_seconds_per_gb", "trainers_seconds_per_gb"):
        assert cpu[what] > 0, cpu


def check_text(program):
    with tempfile.TemporaryDirectory(dir=".") as directory:
        text = measure(program, directory, "save")
    assert "save: " in text and "\nCPU: " in text and "of a CRC pass\nratio " in text, text


def main():
    program = sys.argv[1]
    for bench in ("save", "restore"):
        with tempfile.TemporaryDirectory(dir=".") as directory:
            document = json.loads(measure(program, directory, bench, "--json"))
        assert document["bench"] == bench, document
        assert document["shape"]["bytes"] == 16 << 20, document["shape"]
        check_pairs(document)
        low, high = document["ratio_interval"]
        assert 0 < low <= document["ratio_to_limit"] <= high, document
        assert document["value"] > 0 and document["limit"] > 0, document
        assert document["verdict"] in VERDICTS, document
        assert document["cpu"]["seconds_per_gb"] > 0, document["cpu"]
        assert document["resident_bytes_peak"] > 16 << 20, document
        if bench == "save":
            check_cpu(document)
    check_text(program)


if __name__ == "__main__":
    main()
