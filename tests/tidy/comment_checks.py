"""Comments begin with a noun or a verb: python3 tests/tidy/comment_checks.py [ROOT] counts the
others by folder."""

import collections
import io
import re
import sys
import tokenize

from sources import CPP, Finding, Tree, comments_of, line_of

OPENERS = ("What", "Of", "Those", "Who", "Nobody", "As")

_HASHED = (".py", ".sh", ".cmake", "CMakeLists.txt", "dev", ".ci/run", ".toml", ".fbs")
_OPENER = re.compile(r"\W*(" + "|".join(OPENERS) + r")\b")


def _joined(comments):
    """Comments of whole lines that follow each other are one. (line, whether it is alone, text)"""
    last = None
    for line, alone, text in comments:
        if last and alone and last[1] and line == last[2] + 1:
            last[2] = line
            continue
        if last:
            yield last[0], last[3]
        last = [line, alone, line + text.count("\n"), text]
    if last:
        yield last[0], last[3]


def _python(text):
    """Comments, and strings that stand alone as docstrings do."""
    before = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        alone = token.line[:token.start[1]].strip() == ""
        if token.type == tokenize.COMMENT:
            yield token.start[0], alone, token.string.lstrip("#")
        elif token.type == tokenize.STRING and before in (
                None, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL):
            yield token.start[0], False, token.string.strip("rbuf\"'")
        if token.type != tokenize.COMMENT and token.type != tokenize.NL:
            before = token.type


def _cpp(text):
    for start, comment in comments_of(text):
        begin = text.rfind("\n", 0, start) + 1
        yield line_of(text, start), text[begin:start].strip() == "", comment.strip("/*! \n")


def _hashed(text):
    for number, line in enumerate(text.split("\n"), 1):
        if found := re.search(r"(?:^|\s)(?:#|//)\s(.*)$", line):
            yield number, line[:found.start()].strip() == "", found.group(1)


def riddles(tree):
    """Every comment that begins with one of OPENERS."""
    for path in sorted(tree.files):
        if path.endswith(CPP):
            comments = _cpp(tree.files[path])
        elif path.endswith(".py"):
            comments = _python(tree.files[path])
        elif path.endswith(_HASHED):
            comments = _hashed(tree.files[path])
        else:
            continue
        for line, text in _joined(comments):
            if opener := _OPENER.match(text):
                yield Finding(path, line, "comment", f"begins with \"{opener.group(1)}\"; "
                              "begin with a noun or a verb")


def check_comments(tree):
    return list(riddles(tree))


if __name__ == "__main__":
    counts = collections.Counter(
        finding.path.split("/")[0] if "/" in finding.path else "."
        for finding in riddles(Tree.load(sys.argv[1] if len(sys.argv) > 1 else ".")))
    for folder, count in sorted(counts.items()):
        print(f"{count:6} {folder}")
    print(f"{sum(counts.values()):6} in all")
