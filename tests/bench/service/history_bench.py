#!/usr/bin/env python3
"""ckptbench catalog and export, with little in them: history_bench.py CKPTBENCH"""

import json
import subprocess
import sys


def run(*arguments):
    done = subprocess.run([sys.argv[1], *arguments, "--json"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def check_catalog():
    document = run("catalog", "--units", "600", "--commits", "3", "--repeats", "1",
                   "--small-commits", "40")
    assert document["versions"] == 1800, document
    rows = {row["what"]: row for row in document["rows"]}
    show = rows["show large@300, by the daemon"]
    assert show["limit_ms"] == 50 and show["verdict"] in ("pass", "fail"), show
    assert show["bytes"] > 600 * 100 and show["ms"] > 0, show
    for what in ("start after SIGTERM", "start after SIGKILL"):
        assert rows[what]["limit_ms"] == 2000 and rows[what]["ms"] > 0, rows[what]
    for what in ("prune large --keep-last 1 --dry-run, by the daemon",
                 "prune large --keep-last 2 --dry-run, by the daemon",
                 "ckptctl prune large --keep-last 1",
                 "ckptctl rm removed",
                 "ckptctl prune partial --keep-last 2",
                 "prune partial --keep-last 2 --dry-run, by the daemon",
                 "prune partial --keep-last 39 --dry-run, by the daemon",
                 "show partial@41, by the daemon",
                 "diff partial@20 partial@41, by the daemon"):
        assert rows[what]["ms"] > 0, rows[what]
    assert document["versions_per_second"] > 0, document
    assert document["resident_bytes_peak"] >= document["resident_bytes"] > 0, document
    assert document["journal_bytes"] > 0 and document["catalog_bytes"] > 0, document


def check_export():
    mib = 1 << 20
    document = run("export", "--bytes", "96MiB", "--small", "32MiB", "--shard", "32MiB")
    assert document["same"] is True, document
    actions = [(row["bytes"], row["action"]) for row in document["rows"]]
    assert actions == [(size * mib, action) for size in (32, 96)
                       for action in ("export", "import", "export again")], actions
    for row in document["rows"]:
        assert row["seconds"] > 0 and row["daemon_resident_bytes_peak"] > 0, row
    bad = subprocess.run([sys.argv[1], "export", "--bytes", "20MiB"], capture_output=True,
                         text=True, check=False)
    assert bad.returncode == 2 and "multiples of 16 MiB" in bad.stderr, bad


check_catalog()
check_export()
