#!/usr/bin/env python3
"""Compares tables of settings in the documents with the programs: check_keys.py PROGRAMS [ROOT]

A line `<!-- keys: PROGRAM -->` in a page under ROOT/docs stands above a table whose first column
must name every key of that program's configuration file, and no other. Exit code 1 names the pages
that differ, or says that no page has such a table.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

KEYS = re.compile(r"^<!-- keys: (\S+) -->$")


class Wrong(Exception):
    """A table differs from its program; the text says how."""


def keys_of(program):
    """The keys of a program's configuration file, which it lists when it meets an unknown one."""
    if not program.is_file():
        raise Wrong(f"{program} is missing")
    # A setting of the caller's environment must not be read.
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("CKPT")}
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "unknown.toml"
        config.write_text("no_such_key = 1\n", encoding="utf-8")
        done = subprocess.run([program, "--config", config, "--check-config"], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
                              check=False)
    listed = re.search(r"the keys are: (.+)", done.stderr)
    if not listed:
        raise Wrong(f"{program.name} does not list its keys: {done.stderr.strip()}")
    return set(listed[1].split())


def check_table(program, rows):
    known = keys_of(program)
    shown = {row[1] for row in (re.match(r"\| `(\w+)` \|", line) for line in rows) if row}
    problems = [f"{key} has no row" for key in sorted(known - shown)]
    problems += [f"{key} is no key of {program.name}" for key in sorted(shown - known)]
    if problems:
        raise Wrong("; ".join(problems))


def table_after(lines, at):
    end = at
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return lines[at:end]


def main(programs, root):
    tables, failed = 0, False
    for page in sorted((root / "docs").rglob("*.md")):
        lines = page.read_text(encoding="utf-8").split("\n")
        for at, line in enumerate(lines, start=1):
            keys = KEYS.match(line)
            if not keys:
                continue
            tables += 1
            try:
                check_table(programs / keys[1], table_after(lines, at))
            except Wrong as wrong:
                print(f"{page.relative_to(root)}:{at}: {wrong}", file=sys.stderr)
                failed = True
    if tables == 0:
        print(f"{root}/docs: no page has a table of keys", file=sys.stderr)
    return 1 if failed or tables == 0 else 0


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    ROOT = pathlib.Path(__file__).resolve().parents[2]
    sys.exit(main(pathlib.Path(sys.argv[1]),
                  pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT))
