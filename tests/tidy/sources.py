"""The project's files, and C++ text without comments, strings and preprocessor lines."""

import os
import re
from dataclasses import dataclass
from functools import lru_cache

CPP = (".h", ".hpp", ".c", ".cc", ".cu")
SKIPPED = {".git", "build", ".cache", "__pycache__"}


@dataclass(frozen=True)
class Finding:
    """One broken rule: where, which, and what to do about it."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


class Tree:
    """Files by path from the root. Real ones from disk, planted ones in the tests of the checks."""

    def __init__(self, files, binaries=()):
        self.files = dict(files)
        self.binaries = set(binaries)  # paths of files that are no text

    @classmethod
    def load(cls, root):
        files, binaries = {}, set()
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(d for d in folders if d not in SKIPPED)
            for name in sorted(set(names) - SKIPPED):
                full = os.path.join(folder, name)
                if not os.path.isfile(full):  # e.g. the socket of a bench that runs in parallel
                    continue
                with open(full, "rb") as file:
                    content = file.read()
                path = os.path.relpath(full, root)
                if b"\0" in content[:8192]:  # golden files and the like are bytes, not text
                    binaries.add(path)
                else:
                    files[path] = content.decode("utf-8", "replace")
        return cls(files, binaries)

    def paths(self, suffixes, under=""):
        return [p for p in self.files if p.endswith(suffixes) and p.startswith(under)]


_TOKENS = re.compile(
    r"""
    (?P<comment>//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/)
  | (?P<raw>\b(?:u8|u|U|L)?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
  | (?P<string>"(?:[^"\\\n]|\\.|\\\n)*")
  | (?P<digits>\b[0-9](?:'?[0-9a-zA-Z_.])*)
  | (?P<char>'(?:[^'\\\n]|\\.)+')
    """,
    re.DOTALL | re.VERBOSE,
)
_PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE | re.DOTALL)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


@lru_cache(maxsize=None)  # several checks read each file
def code_only(text):
    """The text with comments, literals and preprocessor lines blanked; every newline stays."""

    def replace(match):
        if match.lastgroup == "digits":  # 1'000'000 is no character literal
            return match.group()
        if match.group("comment"):
            return _blank(match.group())
        return '"' + _blank(match.group()[1:-1]) + '"'

    return _PREPROCESSOR.sub(lambda m: _blank(m.group()), _TOKENS.sub(replace, text))


def comments_of(text):
    """(offset, the comment) of C++: those in literals are none."""
    return [(match.start(), match.group()) for match in _TOKENS.finditer(text)
            if match.group("comment")]


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1
