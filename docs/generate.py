#!/usr/bin/env python3
"""Fills the generated parts of the documents: generate.py [--check] [--programs DIR]

A page holds a block

    <!-- help: PROGRAM [VERB] --help -->
    <!-- end help -->

and gets that program's help between the two lines. A line

    <!-- keys: PROGRAM -->

stands above a table whose first column must name every key of the program's configuration file, and
no other. --check changes nothing and fails if a page is out of date.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("*.md", "*/README.md", "docs/**/*.md")
COLUMNS = 100
BEGIN = re.compile(r"^<!-- help: (.+) -->$")
END = "<!-- end help -->"
KEYS = re.compile(r"^<!-- keys: (\S+) -->$")


class Refused(Exception):
    """A page cannot be generated; the text says why."""


def run(programs, words):
    program = programs / words[0]
    if not program.is_file():
        raise Refused(f"{program} is missing; build it first, or name its folder with --programs")
    # A setting of whoever runs this must not get into the documents.
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("CKPT")}
    return subprocess.run([program, *words[1:]], env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=30, check=False)


def wrapped(line):
    """The line in at most COLUMNS columns; what continues it stands below its last column."""
    if len(line) <= COLUMNS:
        return [line]
    names = re.match(r" *\S.*? {2,}| +", line)
    indent = " " * (names.end() if names else 0)
    return textwrap.wrap(line, COLUMNS, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False, drop_whitespace=True)


def help_block(programs, command):
    done = run(programs, command.split())
    if done.returncode != 0:
        raise Refused(f"{command}: exit code {done.returncode}: {done.stderr.strip()}")
    lines = [part.rstrip() for line in done.stdout.rstrip().split("\n") for part in wrapped(line)]
    return ["```text", *lines, "```"]


def keys_of(programs, program):
    """The keys of a program's configuration file, which it lists when it meets an unknown one."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "unknown.toml"
        config.write_text("no_such_key = 1\n", encoding="utf-8")
        done = run(programs, [program, "--config", str(config), "--check-config"])
    listed = re.search(r"the keys are: (.+)", done.stderr)
    if not listed:
        raise Refused(f"{program} does not list its keys: {done.stderr.strip()}")
    return set(listed[1].split())


def check_keys(programs, program, rows):
    known = keys_of(programs, program)
    shown = {row[1] for row in (re.match(r"\| `(\w+)` \|", line) for line in rows) if row}
    problems = [f"{key} has no row" for key in sorted(known - shown)]
    problems += [f"{key} is no key of {program}" for key in sorted(shown - known)]
    if problems:
        raise Refused("; ".join(problems))


def table_after(lines, at):
    end = at
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return lines[at:end]


def generated(programs, text):
    lines = text.split("\n")
    out = []
    at = 0
    while at < len(lines):
        line = lines[at]
        out.append(line)
        at += 1
        if keys := KEYS.match(line):
            check_keys(programs, keys[1], table_after(lines, at))
        if not (begin := BEGIN.match(line)):
            continue
        end = lines.index(END, at) if END in lines[at:] else len(lines)
        # Else the end of the next block would be taken, and the text between them lost.
        if any(BEGIN.match(inner) for inner in lines[at:end]) or end == len(lines):
            raise Refused(f"line {at}: no line {END} after it")
        out += help_block(programs, begin[1])
        at = end
    return "\n".join(out)


def pages(root):
    return sorted({page for pattern in PAGES for page in root.glob(pattern)})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true",
                        help="change nothing; fail if a page is out of date")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/bin",
                        help="the folder of the built programs (default: build/release/bin)")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT,
                        help="the folder of the documents (default: this checkout)")
    options = parser.parse_args()
    failed = False
    for page in pages(options.root):
        name = page.relative_to(options.root)
        before = page.read_text(encoding="utf-8")
        try:
            after = generated(options.programs.resolve(), before)
        except Refused as refused:
            print(f"{name}: {refused}", file=sys.stderr)
            failed = True
            continue
        if after == before:
            continue
        if options.check:
            print(f"{name}: out of date; run ./dev docs", file=sys.stderr)
            failed = True
        else:
            page.write_text(after, encoding="utf-8")
            print(f"{name}: written", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
