#!/usr/bin/env python3
"""A round of ckptbench kills, whatever its times are: kills_bench.py CKPTBENCH"""

import json
import subprocess
import sys
import tempfile


def main():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.argv[1], "kills", "--rounds", "1", "--arms", "two,taken",
                               "--dir", folder, "--json"],
                              stdout=subprocess.PIPE, text=True, check=True)
    document = json.loads(done.stdout)
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
    bad = subprocess.run([sys.argv[1], "kills", "--arms", "three"], capture_output=True, text=True,
                         check=False)
    assert bad.returncode == 2 and "three" in bad.stderr, bad


main()
