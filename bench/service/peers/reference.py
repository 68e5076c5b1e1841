"""`ckptbench save` of the same bytes: how fast ckptd is without PyTorch."""

import json
import subprocess

from processes import Failed

FRAGMENTS = tuple(1 << power for power in range(24, 15, -1))
PAIRS_LEAST = 11  # of ckptbench


def shape_of(count, ranks):
    """(bytes, bytes of a unit) that ckptbench can save: a multiple of units on all ranks."""
    fragment = next((size for size in FRAGMENTS if 2 * size * ranks <= count), FRAGMENTS[-1])
    return count // (fragment * ranks) * fragment * ranks, fragment


def measure(program, folder, count, ranks):
    """Seconds of each save, scaled to `count` bytes."""
    size, fragment = shape_of(count, ranks)
    arguments = [program, "save", "--bytes", str(size), "--fragment", str(fragment), "--slab",
                 str(min(64 << 20, size // ranks)), "--sessions", str(ranks), "--pairs",
                 str(PAIRS_LEAST), "--pairs-max", str(PAIRS_LEAST), "--seconds", "0", "--dir",
                 str(folder), "--json"]
    # Without fio in PATH the raw loop is the limit, which needs less disk.
    done = subprocess.run(arguments, capture_output=True, text=True, check=False,
                          env={"PATH": "/nonexistent"})
    if done.returncode != 0:
        raise Failed(f"ckptbench save: {done.stderr.strip()[-500:]}")
    return [count / run["value"] for run in json.loads(done.stdout)["runs"]]
