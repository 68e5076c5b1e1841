"""Structure of the project: assertions in tests, sources in targets, a README in every folder."""

import os
import re

from functions import UnbalancedBraces, find_functions
from include_graph import includes_of
from sources import Finding, code_only

_TEST_HEAD = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\s*\(")
# A GoogleTest assertion, or a call of a function whose name says that it asserts.
_ASSERTION = re.compile(r"\b(?:EXPECT|ASSERT)_\w+\s*\(|\bADD_FAILURE\b|\bFAIL\s*\(|"
                        r"\b(?:expect|assert|check|verify|must)_?\w*\s*[(<]", re.IGNORECASE)
_DISABLED = re.compile(r"\bDISABLED_\w+")
_DOCUMENTS = ("README.md", "ARCHITECTURE.md")


def _functions(tree, path):
    try:
        return find_functions(tree.files[path])
    except UnbalancedBraces:
        return []  # reported by the length check


def _asserting_names(tree, path, seen):
    """Functions of this file and of the test headers it includes that assert something."""
    if path in seen:
        return set()
    seen.add(path)
    names = set()
    for function in _functions(tree, path):
        if _ASSERTION.search(function.body) and not _TEST_HEAD.match(function.head):
            names.update(re.findall(r"([A-Za-z_]\w*)\s*\(", function.head)[:1])
    for _, _, included in includes_of(tree.files[path]):
        if included.startswith("tests/") and included in tree.files:
            names |= _asserting_names(tree, included, seen)
            source = included.removesuffix(".h") + ".cc"
            if source in tree.files:
                names |= _asserting_names(tree, source, seen)
    return names


def check_assertions(tree):
    for path in tree.paths(("_test.cc", "_test.c"), "tests/"):
        text = tree.files[path]
        for found in _DISABLED.finditer(text):
            yield Finding(path, text.count("\n", 0, found.start()) + 1, "disabled-test",
                          f"{found.group()}: mend it or remove it")
        if path.endswith(".c"):
            if not _ASSERTION.search(code_only(text)):
                yield Finding(path, 1, "assertion", "a test program without any check")
            continue
        names = _asserting_names(tree, path, set())
        for function in _functions(tree, path):
            if not _TEST_HEAD.match(function.head) or _ASSERTION.search(function.body):
                continue
            if not names & set(re.findall(r"\b([A-Za-z_]\w*)\s*\(", function.body)):
                yield Finding(path, function.first_line, "assertion",
                              f"{function.head} asserts nothing: it cannot fail")


INVARIANTS = "docs/internals/invariants.md"
_INVARIANT = re.compile(r"^\| (?P<what>[^|]+) \| `(?P<message>[^|]+)` \| (?P<suites>[^|]+) \|$")


def check_invariants(tree):
    """Every listed invariant has its assert in a source, and suites with a death test."""
    if INVARIANTS not in tree.files:
        return
    sources = [tree.files[path] for path in tree.paths((".cc", ".h"))
               if not path.startswith("tests/")]
    dying = [tree.files[path] for path in tree.paths((".cc",), "tests/")
             if "EXPECT_DEATH" in tree.files[path]]
    for number, line in enumerate(tree.files[INVARIANTS].splitlines(), 1):
        row = _INVARIANT.match(line)
        if not row:
            continue
        if not any(row["message"] in text for text in sources):
            yield Finding(INVARIANTS, number, "invariant", f"no assert says: {row['message']}")
        for suite in re.findall(r"`(\w+)`", row["suites"]):
            if not any(re.search(rf"^TEST(?:_F)?\({suite},", text, re.M) for text in dying):
                yield Finding(INVARIANTS, number, "invariant",
                              f"no suite {suite} has a test that breaks it")


_THROWING_OUTPUT = re.compile(r"\b(?:fmt::print\s*\(|std::cout\b)")


def check_unused_names(tree):
    """Names that a source takes out of a namespace and never uses. clang-tidy finds them only in
    the main source file, not in a unity build."""
    for path in tree.paths((".cc",)):
        code = code_only(tree.files[path])
        for taken in re.finditer(r"^\s*(?:using (?:\w*::)+(\w+)|namespace (\w+) = [\w:]+);", code,
                                 re.MULTILINE):
            name = taken[1] or taken[2]
            if len(re.findall(rf"\b{name}\b", code)) == len(re.findall(rf"\b{name}\b", taken[0])):
                line = code.count("\n", 0, taken.end()) + 1
                yield Finding(path, line, "unused-name", f"{name} is never used here")


def check_console(tree):
    """fmt::print throws if a stream is closed or full, and escapes nothing."""
    for path in tree.paths((".cc", ".h"), ("client/ctl/", "trainer/", "ckptd/", "bench/")):
        if path.startswith("bench/service/gpu/"):
            continue
        for found in _THROWING_OUTPUT.finditer(code_only(tree.files[path])):
            yield Finding(path, tree.files[path].count("\n", 0, found.start()) + 1, "console",
                          f"{found.group()}: use print_stdout or print_stderr "
                          "(formats/base/console.h)")


def check_signals(tree):
    """kill(-1) signals every process of the user. A program that did not start has pid -1."""
    for path in tree.paths((".cc", ".h", ".c"), ("tests/",)):
        if path == "tests/support/signals.h":
            continue
        for found in re.finditer(r"(?<![\w)>])::kill\s*\(", code_only(tree.files[path])):
            line = tree.files[path].count("\n", 0, found.start()) + 1
            yield Finding(path, line, "signal",
                          "::kill: use send_signal (tests/support/signals.h)")


def check_sources_are_built(tree):
    """A source that no target lists is never compiled."""
    built = set()
    for path in tree.paths(("CMakeLists.txt",)):
        for word in re.findall(r"[\w./+-]+\.(?:cc|cu|c)\b", tree.files[path]):
            # A path after ${PROJECT_SOURCE_DIR} loses its variable and starts with a slash.
            folder = "" if word.startswith("/") else os.path.dirname(path)
            built.add(os.path.normpath(os.path.join(folder, word.lstrip("/"))))
    for path in tree.paths((".cc", ".c", ".cu")):
        # tests/install holds a stranger's project, built by its test.
        if path not in built and not path.startswith("tests/install/"):
            yield Finding(path, 1, "not-built", "no CMakeLists.txt lists it")


def check_documents(tree):
    folders = {path.split("/")[0] for path in tree.files if "/" in path}
    for folder in sorted(folders):
        if folder.startswith(".") or folder == "cmake":
            continue
        if not any(f"{folder}/{name}" in tree.files for name in _DOCUMENTS):
            yield Finding(folder, 1, "readme", "says nowhere what enters, what leaves and what it "
                          "must never know")
    for name in ("README.md", "LICENSE"):
        if name not in tree.files:
            yield Finding(name, 1, "readme", "is missing")
