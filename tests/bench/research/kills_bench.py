#!/usr/bin/env python3
"""Rounds of ckptbench kills; times are not checked: kills_bench.py CKPTBENCH"""

import json
import subprocess
import sys
import tempfile


def measure(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.argv[1], "kills", "--rounds", "1", *arguments, "--dir", folder,
                               "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def refused(*arguments):
    done = subprocess.run([sys.argv[1], "kills", *arguments], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 2, done
    return done.stderr


def check_sharded():
    document = measure("--expert-state", "sharded", "--arms", "two")
    shape = document["shape"]
    assert shape["expert_state"] == "sharded" and shape["checkpoint_every"] == 1, shape
    (row,) = document["rows"]
    (run,) = row["runs"]
    assert row["right"] and row["same_bits"] and row["limit"] == 1.0, row
    assert run["group"] == 6 and run["steps_redone"] <= 1 and run["lost_tokens"] == 0, run
    assert run["loss_difference"] == 0 and run["experts_taken"] == 0, run
    told = refused("--expert-state", "sharded", "--arms", "taken")
    assert "--arms taken" in told and "one, two, restart, hang" in told, told


def main():
    document = measure("--arms", "two,taken")
    assert document["bench"] == "kills" and document["machine"], document
    assert document["limit"] == 1.0 and document["value"] > 0, document
    rows = {row["arm"]: row for row in document["rows"]}
    assert sorted(rows) == ["taken", "two"], sorted(rows)
    for row in rows.values():
        (run,) = row["runs"]
        assert row["right"] and row["same_bits"], row
        assert run["group"] == 6 and run["steps_redone"] == 0, run
        assert run["loss_difference"] == 0, run
        parts = sum(run["split"].values())
        assert abs(parts - run["seconds"]) < 1e-6, (parts, run)
        assert row["verdict"] == "inconclusive", "one run says nothing of times"
    assert rows["two"]["runs"][0]["lost_tokens"] == 0, rows["two"]
    taken = rows["taken"]["runs"][0]
    assert taken["experts_taken"] > 0 and taken["lost_tokens"] > 0, taken
    assert "three" in refused("--arms", "three")
    assert "give at least 4" in refused("--checkpoint-every", "1")
    check_sharded()


main()
