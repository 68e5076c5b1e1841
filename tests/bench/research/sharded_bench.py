#!/usr/bin/env python3
"""Two short rounds of ckptbench sharded; times are not checked: sharded_bench.py CKPTBENCH"""

import json
import subprocess
import sys
import tempfile


def run(program, *arguments):
    return subprocess.run([program, "sharded", *arguments], capture_output=True, text=True,
                          check=False)


def measure(program):
    with tempfile.TemporaryDirectory() as folder:
        done = run(program, "--shapes", "2x12", "--arms", "static-ep,fsdp-ep,no-schedule",
                   "--sequences", "8", "--steps", "6", "--budget", "1", "--dir", folder, "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def check_counts(rows):
    laer, fsdp, fixed = rows["laer"], rows["fsdp-ep"], rows["static-ep"]
    assert fixed["busiest_tokens"] == fsdp["busiest_tokens"], "the same plan, the same tokens"
    assert laer["busiest_tokens"] < fsdp["busiest_tokens"], (laer, fsdp)
    assert abs(fsdp["exchange"]["experts_restored"] - 8) < 1e-9, fsdp
    assert 8 <= laer["exchange"]["experts_restored"] <= 12, laer
    for row in rows.values():
        exchange, memory = row["exchange"], row["memory"]
        assert row["same_bits"], row
        assert exchange["token_bytes"] > 0 and memory["resident_bytes_peak"] > 0, row
        # Two restores of 4 bytes an element, one re-shard of 8.
        assert exchange["restore_bytes"] == exchange["reshard_bytes"] or row is fixed, row
        assert memory["expert_bytes"] <= memory.get("expert_bytes_bound", 1e12), row
    assert fixed["exchange"]["restore_bytes"] == 0, fixed


def check_schedule(rows):
    # Four layers, two prefetched: a pass restores them 0, 1, 2 and 2 layers ahead.
    ahead = {"laer": (1.25, 0.75), "fsdp-ep": (1.25, 0.75), "no-schedule": (0, 0)}
    for arm, (restores, reshards) in ahead.items():
        schedule = rows[arm]["schedule"]
        assert schedule["restores"] == {"per_rank_and_step": 8, "layers_ahead": restores}, schedule
        assert schedule["reshards"] == {"per_rank_and_step": 4, "layers_ahead": reshards}, schedule
    assert rows["no-schedule"]["exchange"]["hidden_ms"] == 0, rows["no-schedule"]
    assert "schedule" not in rows["static-ep"], rows["static-ep"]


def main(program):
    document = measure(program)
    assert document["bench"] == "sharded" and document["machine"], document
    assert document["rounds"] == 2 and "cores" in document["note"], document
    rows = {row["arm"]: row for row in document["rows"]}
    assert list(rows) == ["laer", "static-ep", "fsdp-ep", "no-schedule"], list(rows)
    check_counts(rows)
    check_schedule(rows)
    assert rows["laer"]["verdict"] == "reference", rows["laer"]
    assert rows["no-schedule"]["verdict"] == "measured", rows["no-schedule"]
    bad = run(program, "--shapes", "4x3")
    assert bad.returncode == 2 and "4 to 16 slots" in bad.stderr, bad
    bad = run(program, "--arms", "fastest")
    assert bad.returncode == 2 and "--arms fastest: there is no such arm" in bad.stderr, bad


main(*sys.argv[1:])
