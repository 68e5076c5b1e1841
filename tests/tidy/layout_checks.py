"""How files look: lengths, columns, blanks, header guards, words that must not stay."""

import ast
import re

from functions import UnbalancedBraces, find_functions
from sources import CPP, Finding

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
COLUMNS_MAX = 100

_TEXT = CPP + (".py", ".sh", ".cmake", ".fbs", ".supp", ".toml", "CMakeLists.txt", "dev",
               ".ci/run", ".clang-tidy", ".clang-format")
# Put together here so that this file does not break its own rule.
_UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
_MACHINE_PATH = re.compile(r"(?<![\w.])/(?:" + "|".join(["work", "home", "root", "Users"])
                           + r")/[\w.]")


def check_files(tree):
    for path in tree.paths(_TEXT):
        lines = tree.files[path].split("\n")
        if lines and lines[-1] == "":
            lines.pop()
        elif lines:
            yield Finding(path, len(lines), "final-newline", "the last line does not end")
        if len(lines) > FILE_LINES_MAX:
            yield Finding(path, len(lines), "file-length",
                          f"{len(lines)} lines; split it by idea (at most {FILE_LINES_MAX})")
        for number, line in enumerate(lines, 1):
            yield from _check_line(path, number, line)


def _check_line(path, number, line):
    if len(line) > COLUMNS_MAX:
        yield Finding(path, number, "columns", f"{len(line)} columns (at most {COLUMNS_MAX})")
    if "\t" in line:
        yield Finding(path, number, "tab", "a tab")
    if line != line.rstrip():
        yield Finding(path, number, "trailing-space", "blanks at the end of the line")


def check_words(tree):
    for path, text in tree.files.items():
        if path == "LICENSE":
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for pattern, what in ((_UNFINISHED, "unfinished work"), (_MACHINE_PATH, "the path "
                                                                     "of one machine")):
                if found := pattern.search(line):
                    yield Finding(path, number, "word", f"{found.group()}: {what}")


def check_headers(tree):
    guard = re.compile(r"^#ifndef (\w+_H(?:PP)?_?)\n#define \1$", re.MULTILINE)
    for path in tree.paths((".h", ".hpp")):
        text = tree.files[path]
        if re.search(r"^#pragma once$", text, re.MULTILINE):
            continue
        # Public C headers are read by compilers we do not choose: they may keep the old guard.
        if not (path.startswith("client/include/") and guard.search(text)):
            yield Finding(path, 1, "pragma-once", "a header without #pragma once")


def check_function_lengths(tree):
    for path in tree.paths((".h", ".hpp", ".c", ".cc")):  # a device kernel may be longer
        try:
            functions = find_functions(tree.files[path])
        except UnbalancedBraces as error:
            yield Finding(path, 1, "function-length", f"cannot read it: {error}")
            continue
        for function in functions:
            if function.lines > FUNCTION_LINES_MAX:
                yield _too_long(path, function.first_line, function.head[-60:], function.lines)
    for path in tree.paths((".py",)):
        for node in ast.walk(ast.parse(tree.files[path])):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    yield _too_long(path, node.lineno, node.name, lines)


def _too_long(path, line, name, lines):
    return Finding(path, line, "function-length",
                   f"{name}: {lines} lines (at most {FUNCTION_LINES_MAX})")
