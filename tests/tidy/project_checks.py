"""What must be where: assertions in tests, sources in targets, a README in every folder."""

import os
import re

from functions import UnbalancedBraces, find_functions
from sources import Finding

_TEST_HEAD = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\s*\(")
# A GoogleTest assertion, or a call of a function that by its name makes some.
_ASSERTION = re.compile(r"\b(?:EXPECT|ASSERT)_\w+\s*\(|\bADD_FAILURE\b|\bFAIL\s*\(|"
                        r"\b(?:expect|assert|check|verify|must)_?\w*\s*[(<]", re.IGNORECASE)
_DISABLED = re.compile(r"\bDISABLED_\w+")
_DOCUMENTS = ("README.md", "ARCHITECTURE.md")


def check_assertions(tree):
    for path in tree.paths(("_test.cc", "_test.c"), "tests/"):
        text = tree.files[path]
        for found in _DISABLED.finditer(text):
            yield Finding(path, text.count("\n", 0, found.start()) + 1, "disabled-test",
                          f"{found.group()}: mend it or remove it")
        if path.endswith(".c"):
            if not _ASSERTION.search(text):
                yield Finding(path, 1, "assertion", "a test program without any check")
            continue
        try:
            functions = find_functions(text)
        except UnbalancedBraces:
            continue  # reported by the length check
        for function in functions:
            if _TEST_HEAD.match(function.head) and not _ASSERTION.search(function.body):
                yield Finding(path, function.first_line, "assertion",
                              f"{function.head} asserts nothing: it cannot fail")


def check_sources_are_built(tree):
    """A source that no target lists rots unseen."""
    for path in tree.paths((".cc", ".c", ".cu")):
        folder, name = os.path.split(path)
        if path.startswith("tests/install/"):  # a stranger's project, built by its test
            continue
        listed = False
        while not listed:
            lists = tree.files.get(os.path.join(folder, "CMakeLists.txt"), "")
            relative = os.path.relpath(path, folder or ".")
            stem = re.escape(os.path.splitext(relative)[0])
            listed = re.search(r"(?<![\w./-])" + re.escape(relative) + r"(?![\w.-])", lists) \
                is not None or re.search(r"foreach.*\b" + stem + r"\b", lists) is not None
            if folder == "":
                break
            folder = os.path.dirname(folder)
        if not listed:
            yield Finding(path, 1, "not-built", f"no CMakeLists.txt lists {name}")


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
