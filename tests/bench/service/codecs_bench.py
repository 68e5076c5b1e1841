#!/usr/bin/env python3
"""Checks the table of ckptbench codecs after a few steps: codecs_bench.py CKPTBENCH"""

import json
import subprocess
import sys

STATES = {"weights bf16": 2, "weights fp32": 4, "Adam m": 4, "Adam v": 4}
CODECS = {("zstd", 0), ("planes + zstd", 0), ("xor + planes + zstd", 1),
          ("xor + planes + zstd", 2)}


def run(*arguments):
    return subprocess.run([sys.argv[1], "codecs", *arguments], capture_output=True, text=True,
                          check=False)


def main():
    done = run("--steps", "4", "--apart", "1", "2", "--seconds", "0", "--disk-bytes", "16MiB",
               "--json")
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert document["bench"] == "codecs" and document["machine"], document
    disk, threads = document["disk_bytes_per_second"], document["threads"]
    assert disk > 0 and threads > 0 and document["memcpy_bytes_per_second"] > 0, document
    rows = {(row["state"], row["codec"], row["steps_apart"]): row for row in document["rows"]}
    assert set(rows) == {(state, *codec) for state in STATES for codec in CODECS}, rows.keys()
    parameters = document["shape"]["parameters"]
    for (state, _, _), row in rows.items():
        assert row["bytes"] == parameters * STATES[state], row
        assert 0 < row["stored_bytes"] <= row["bytes"], row
        assert row["ratio"] == row["stored_bytes"] / row["bytes"], row
        assert row["decode_bytes_per_second"] > 0, row
        for name, count in (("times_as_fast_one_thread", 1), ("times_as_fast", threads)):
            wanted = min(row["encode_bytes_per_second"] * count, disk / row["ratio"]) / disk
            assert abs(row[name] / wanted - 1) < 1e-9, row
    # Planes pay because signs and exponents are alike; deltas, because weights hardly change.
    for state in ("weights bf16", "weights fp32"):
        plain, planes = rows[state, "zstd", 0], rows[state, "planes + zstd", 0]
        delta = rows[state, "xor + planes + zstd", 1]
        assert delta["ratio"] < planes["ratio"] < plain["ratio"], (plain, planes, delta)
    bad = run("--steps", "4", "--apart", "4")
    assert bad.returncode == 2 and "a delta over 4 of 4 steps" in bad.stderr, bad
    assert run("--steps", "1").returncode == 2


main()
