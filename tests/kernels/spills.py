#!/usr/bin/env python3
"""Fails where a CUDA kernel spills registers: python3 tests/kernels/spills.py BUILD FILE.cu...

A kernel that only moves memory must keep what it holds in registers: a spill is more memory to
move. Compiles each file again as BUILD/compile_commands.json says, with -Xptxas -v, and reads what
ptxas says of every kernel and architecture. Exit code: 0 if none spills, 1 if one does or if ptxas
spoke of none, 2 if a file is not in the build or does not compile.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

_KERNEL = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def read_report(text):
    """[(kernel, architecture, bytes stored, bytes loaded)] of what ptxas -v says."""
    kernels = []
    current = None
    for line in text.split("\n"):
        if found := _KERNEL.search(line):
            current = found.groups()
        elif (found := _SPILLS.search(line)) and current is not None:
            kernels.append((*current, int(found.group(1)), int(found.group(2))))
            current = None
    return kernels


def faults_of(name, text):
    """A sentence for every kernel that spills, or one if the report is of none."""
    kernels = read_report(text)
    if not kernels:
        return [f"{name}: ptxas says nothing of any kernel"]
    return [f"{name}: {kernel} for {architecture} spills {stored} bytes and loads {loaded}"
            for kernel, architecture, stored, loaded in kernels if stored or loaded]


def reporting_command(entry, output):
    """The build's command, with a report, and its result in `output`."""
    words = entry["arguments"] if "arguments" in entry else shlex.split(entry["command"])
    if "-o" not in words:
        raise ValueError(f"{entry['file']}: its command has no -o")
    words = list(words)
    words[words.index("-o") + 1] = str(output)
    for option in ("-MF", "-MT", "-MQ"):
        if option in words:
            at = words.index(option)
            del words[at:at + 2]
    return [word for word in words if word not in ("-MD", "-MMD")] + ["-Xptxas=-v"]


def check_file(entries, path):
    entry = entries.get(str(path))
    if entry is None:
        raise ValueError(f"{path}: not in the build's compile_commands.json")
    # Not /dev/null: a compiler that fails removes its output.
    with tempfile.TemporaryDirectory() as folder:
        command = reporting_command(entry, pathlib.Path(folder) / "kernels.o")
        done = subprocess.run(command, cwd=entry["directory"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise ValueError(f"{path}: does not compile:\n{done.stdout}")
    return path.name, done.stdout


def main(build, files):
    with open(pathlib.Path(build) / "compile_commands.json", encoding="utf-8") as commands:
        entries = {str(pathlib.Path(entry["file"]).resolve()): entry
                   for entry in json.load(commands)}
    paths = [pathlib.Path(file).resolve() for file in files]
    faults = []
    kernels = 0
    try:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for name, report in pool.map(lambda path: check_file(entries, path), paths):
                faults += faults_of(name, report)
                kernels += len(read_report(report))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{kernels} kernels of {len(paths)} files: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
