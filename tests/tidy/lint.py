#!/usr/bin/env python3
"""clang-format and clang-tidy over the project: python3 tests/tidy/lint.py --build build/release

What clang-tidy found clean is remembered by content: the source, every header of ours it reaches,
its compiler flags, the configuration and the tool's version. Only what changed is read again.
Where many sources of one file of CMake's unity build changed, clang-tidy reads that file, and their
common headers once: a fifth of the time. If it finds anything there, each source is read by itself.
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

# Newer versions do not analyse system headers, whose findings are hidden anyway: half the time per
# file. Pinned, because another version would have other findings.
CLANG_TIDY = "clang-tidy-22"
# clang needs flags to read Asio's coroutines. It does not know every warning of GCC. GCC's
# stable_sort uses a deprecated function. A test double of a C++ library returns C++ types from
# C functions.
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
    """All files of this project that `path` includes, directly or not; for generated headers, their
    schemas."""
    for _, _, included in includes_of(tree.files[path]):
        if included.endswith("_generated.h"):
            reached.update(tree.paths((".fbs",)))
        for target in (included, "client/include/" + included):
            if target in tree.files and target not in reached:
                reached.add(target)
                reached_headers(tree, target, reached)
    return reached


WORTH_IT = 3  # sources that changed, in one file of a unity build, for reading that file
UNITY = re.compile(r"/Unity/unity_\w+\.cxx$")


def included_sources(unity):
    """Absolute paths of the sources that a file of a unity build includes."""
    with open(unity, encoding="utf-8") as file:
        return re.findall(r'^#include "(.*)"$', file.read(), re.MULTILINE)


def of_single_sources(entries, root):
    """The entries of compile_commands.json, with those of files that include many sources (CMake's
    unity builds) taken apart: each source as if it were compiled by itself."""
    for entry in entries:
        if not UNITY.search(entry["file"]):
            yield entry
            continue
        sources = included_sources(entry["file"])
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
            built = json.load(file)
        entries = list(of_single_sources(built, root))
        unities = [entry for entry in built if UNITY.search(entry["file"])]
        self.database = os.path.join(build, "lint")  # the folder that clang-tidy looks into
        os.makedirs(self.database, exist_ok=True)
        with open(os.path.join(self.database, "compile_commands.json"), "w",
                  encoding="utf-8") as file:
            json.dump(entries + unities, file)
        self.unities = {
            entry["file"]: [os.path.relpath(source, root)
                            for source in included_sources(entry["file"])] for entry in unities}
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

    def marker(self, path):
        return os.path.join(self.cache, self.key(path))

    def known(self, path):
        marker = self.marker(path)
        if os.path.exists(marker):
            os.utime(marker)
            return True
        return False

    def remember(self, path):
        with open(self.marker(path), "w", encoding="utf-8"):
            pass

    def tidy(self, path, *flags):
        return subprocess.run([CLANG_TIDY, "--quiet", "-p", self.database, *EXTRA, *flags,
                               f"--header-filter=^{self.root}/({FOLDERS})/",
                               os.path.join(self.root, path)], capture_output=True, text=True)

    def configuration(self, path):
        """The .clang-tidy that holds for this source."""
        folder = path
        while folder:
            folder = os.path.dirname(folder)
            if (config := os.path.join(folder, ".clang-tidy")) in self.tree.files:
                return os.path.join(self.root, config)
        return None

    def check_together(self, unity):
        """Remembers the sources of this file of a unity build if clang-tidy finds nothing in it."""
        stale = [path for path in self.unities[unity]
                 if path in self.commands and not self.known(path)]
        configurations = {self.configuration(path) for path in self.unities[unity]}
        if len(stale) < WORTH_IT or len(configurations) > 1:
            return
        # A unity file includes sources on purpose.
        run = self.tidy(unity, f"--config-file={configurations.pop()}",
                        "--checks=-bugprone-suspicious-include")
        if run.returncode == 0:
            for path in stale:
                self.remember(path)

    def check(self, path):
        """Findings of clang-tidy as text; empty if clean. Only a clean result is remembered."""
        run = self.tidy(path)
        if run.returncode == 0:
            self.remember(path)
            return ""
        errors = "\n".join(line for line in run.stderr.split("\n")
                           if line and not line.endswith("generated."))
        return run.stdout or errors or f"clang-tidy exited {run.returncode}"

    def run(self, jobs):
        """The sources with findings, which are printed."""
        failed = []
        known = sum(self.known(path) for path in self.commands)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done, _ in enumerate(pool.map(self.check_together, sorted(self.unities)), 1):
                if done % 20 == 0:
                    say(f"lint: {done} of {len(self.unities)} batches")
            stale = [path for path in sorted(self.commands) if not self.known(path)]
            for done, (path, found) in enumerate(zip(stale, pool.map(self.check, stale)), 1):
                if found:
                    failed.append(path)
                    print(found.replace(self.root + "/", "").rstrip(), flush=True)
                if done % 50 == 0:
                    say(f"lint: {done} of {len(stale)} files")
        say(f"lint: {len(self.commands)} files, {known} known to be clean, "
            f"{len(stale)} read alone, {len(failed)} with findings")
        return failed


def say(line):
    print(line, file=sys.stderr, flush=True)


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
