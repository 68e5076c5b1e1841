#!/usr/bin/env python3
"""clang-format and clang-tidy over the project: python3 tests/tidy/lint.py --build build/release

What clang-tidy found clean is remembered by content: the source, every header of ours it reaches,
its compiler flags, the configuration and the tool's version. Only what changed is read again.
Exit code 0: clean; 1: findings are on stdout.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

from include_graph import includes_of
from sources import CPP, Tree

# The newer ones do not search the system's headers for findings that nobody would be shown: a file
# takes half the time. Another version would have other findings, so it is named.
CLANG_TIDY = "clang-tidy-22"
# clang reads Asio's coroutines only when told so; it does not know every warning GCC knows; GCC's
# stable_sort uses what the standard has deprecated since; and what a double of a C++ library
# returns is no C either.
EXTRA = [f"--extra-arg={flag}" for flag in
         ("-DASIO_HAS_CO_AWAIT=1", "-DASIO_HAS_STD_COROUTINE=1", "-Wno-unknown-warning-option",
          "-Wno-deprecated-declarations", "-Wno-return-type-c-linkage")]
FOLDERS = "formats|kernels|client|ckptd|trainer|bench|tests"


def check_format(tree):
    """Findings of clang-format, one line for each file."""
    paths = sorted(tree.paths(CPP))
    run = subprocess.run(["clang-format", "--dry-run", "--Werror", "--ferror-limit=1", *paths],
                         capture_output=True, text=True)
    wrong = [line.split(":")[0] for line in run.stderr.split("\n") if "clang-format" in line]
    return [f"{path}: not formatted; run ./dev format" for path in sorted(set(wrong))]


def reached_headers(tree, path, reached):
    """Every file of ours that `path` includes, directly or not; the schemas, for what is generated
    from them."""
    for _, _, included in includes_of(tree.files[path]):
        if included.endswith("_generated.h"):
            reached.update(tree.paths((".fbs",)))
        for target in (included, "client/include/" + included):
            if target in tree.files and target not in reached:
                reached.add(target)
                reached_headers(tree, target, reached)
    return reached


UNITY = re.compile(r"/Unity/unity_\w+\.cxx$")


def of_single_sources(entries, root):
    """The entries of compile_commands.json, with those of files that include many sources (CMake's
    unity builds) taken apart: each source as if it were compiled by itself."""
    for entry in entries:
        if not UNITY.search(entry["file"]):
            yield entry
            continue
        with open(entry["file"], encoding="utf-8") as file:
            sources = re.findall(r'^#include "(.*)"$', file.read(), re.MULTILINE)
        home = entry["file"].partition("/CMakeFiles/")[0]  # the target's folder, in the build
        folder = os.path.relpath(home, entry["directory"])
        objects = re.search(r" -o (\S+)/Unity/\S+", entry["command"])
        for source in sources:
            name = os.path.relpath(source, os.path.join(root, folder))
            command = entry["command"].replace(entry["file"], source)
            output = f" -o {objects[1]}/{name.replace('..', '__')}.o"
            yield {**entry, "file": source, "command": command.replace(objects[0], output)}


class Lint:
    def __init__(self, root, build, cache):
        self.root, self.cache = root, cache
        self.tree = Tree.load(root)
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            entries = list(of_single_sources(json.load(file), root))
        self.database = os.path.join(build, "lint")  # the folder that clang-tidy looks into
        os.makedirs(self.database, exist_ok=True)
        with open(os.path.join(self.database, "compile_commands.json"), "w",
                  encoding="utf-8") as file:
            json.dump(entries, file)
        self.commands = {}
        for entry in entries:
            path = os.path.relpath(entry["file"], root)
            if path in self.tree.files and path.endswith((".cc", ".c")):
                self.commands[path] = entry["command"].replace(root, ".")
        version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, text=True)
        self.base = version.stdout + " ".join(EXTRA) + self.tree.files[".clang-tidy"]
        os.makedirs(cache, exist_ok=True)

    def key(self, path):
        digest = hashlib.sha256((self.base + self.commands[path]).encode())
        folders = path.split("/")
        nearer = ["/".join(folders[:depth] + [".clang-tidy"]) for depth in range(1, len(folders))]
        configured = [config for config in nearer if config in self.tree.files]
        for part in (path, *configured, *sorted(reached_headers(self.tree, path, set()))):
            digest.update(f"\n{part}\n{self.tree.files[part]}".encode())
        return digest.hexdigest()

    def check(self, path):
        """Findings of clang-tidy as text; empty if clean. Only a clean result is remembered."""
        marker = os.path.join(self.cache, self.key(path))
        if os.path.exists(marker):
            os.utime(marker)
            return "", True
        run = subprocess.run([CLANG_TIDY, "--quiet", "-p", self.database, *EXTRA,
                              f"--header-filter=^{self.root}/({FOLDERS})/",
                              os.path.join(self.root, path)], capture_output=True, text=True)
        if run.returncode == 0:
            with open(marker, "w", encoding="utf-8"):
                return "", False
        errors = "\n".join(line for line in run.stderr.split("\n")
                           if line and not line.endswith("generated."))
        return run.stdout or errors or f"clang-tidy exited {run.returncode}", False

    def run(self, jobs):
        failed, cached = [], 0
        paths = sorted(self.commands)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done, (path, (found, known)) in enumerate(
                    zip(paths, pool.map(self.check, paths)), 1):
                cached += known
                if found:
                    failed.append(path)
                    print(found.replace(self.root + "/", "").rstrip(), flush=True)
                if done % 50 == 0:
                    print(f"lint: {done} of {len(paths)} files", file=sys.stderr, flush=True)
        print(f"lint: {len(paths)} files, {cached} known to be clean, {len(failed)} with findings",
              file=sys.stderr)
        return failed


def default_cache():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "ckptd-lint")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build/release", help="where compile_commands.json is")
    parser.add_argument("--cache", default=default_cache(), help="what was clean before")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    root = os.path.realpath(".")
    lint = Lint(root, os.path.realpath(options.build), options.cache)
    unformatted = check_format(lint.tree)
    for line in unformatted:
        print(line)
    return 1 if lint.run(options.jobs) or unformatted else 0


if __name__ == "__main__":
    sys.exit(main())
