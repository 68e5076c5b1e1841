"""Balance of real runs with sharded experts: sharded_balance.py MOETRAIN [TRACE.csv.gz]

Tokens of the busiest rank over the mean, counted by `moetrain run`; the mean over layers and steps
after the first 10. Without a trace: routing by Zipf's law. With one: the routing of a real model;
CKPT_ROUTING_TRACE names another file. If the file is missing, exits with 77, which counts as
skipped. Counts only: the figures do not depend on the machine's speed.
"""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
BUSIEST_MAX = 1.15
STEPS_BEFORE = 10
MODEL = ["--layers", "4", "--hidden", "8", "--heads", "1", "--kv-heads", "1", "--head-dim", "8",
         "--intermediate", "8", "--seq", "128", "--checkpoint-every", "0"]
ZIPF = ["--experts", "16", "--ranks", "4", "--slots", "8", "--batch", "32", "--steps", "40",
        "--router-skew", "1.2"]
# The trace has every 20th iteration, so a sample is held for 20 steps; that it then changes at once
# is harder than what was recorded. Held for 4 steps, five times as fast, laer came to 1.23.
TRACE = ["--experts", "32", "--ranks", "8", "--slots", "8", "--batch", "64", "--steps", "70",
         "--router-trace-hold", "20"]


def write_text(path):
    """Text of our own: figures do not change with the sources."""
    words = [f"{i * i % 997:x}{'aeiou'[i % 5]}{i % 89}" for i in range(4000)]
    path.write_text(" ".join(words[i * i % 4000] for i in range(60000)))


def balance(program, folder, *flags):
    report = folder / "report.json"
    done = subprocess.run([program, "run", "--data", folder / "text.txt", "--report", report,
                           "--expert-state", "sharded", *MODEL, *flags],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counted = [load["max_over_mean"] for load in json.loads(report.read_text())["loads"]
               if load["step"] > STEPS_BEFORE]
    assert len(counted) >= 30, counted
    return sum(counted) / len(counted)


def main(program, packed=None):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / "text.txt")
        shape = ZIPF
        if packed is not None:
            packed = os.environ.get("CKPT_ROUTING_TRACE") or packed
            if not os.path.exists(packed):
                print(f"skipped: no trace at {packed} (CKPT_ROUTING_TRACE names another place)")
                return SKIPPED
            with gzip.open(packed, "rb") as source, open(folder / "trace.csv", "wb") as trace:
                shutil.copyfileobj(source, trace)
            shape = [*TRACE, "--router-trace", folder / "trace.csv"]
        followed = balance(program, folder, "--placement", "laer", *shape)
        fixed = balance(program, folder, "--placement", "static", *shape)
        print(f"the busiest rank has {followed:.3f} times the mean, {fixed:.3f} with static")
        assert followed <= BUSIEST_MAX, followed
        assert fixed > followed + 0.05, "otherwise the routing asks nothing of a planner"
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
