"""The names of tests say the behaviour in a few words: python3 tests/tidy/name_checks.py [ROOT]
counts the other names by folder."""

import collections
import os
import re
import sys

from sources import CPP, Finding, Tree, code_only, line_of

WORDS_MAX = 8
# Words that begin a description of the subject instead of its name.
OPENERS = ("What", "Of", "Those", "Who", "Whoever", "Nobody", "Nothing", "As", "Where", "That")

_TEST = re.compile(r"^[ \t]*(?:TYPED_TEST(?:_P)?|TEST(?:_F|_P)?)\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)",
                   re.MULTILINE)
# A run of capitals is one word, up to the capital that begins the next one: IO, Error. A number
# belongs to the word before it: BF16, Fp8.
_WORD = re.compile(r"[A-Z]+[0-9]*(?![a-z0-9])|[A-Z][a-z0-9]*|[a-z]+[0-9]*|[0-9]+")


def words_of(name):
    return _WORD.findall(name)


def check_test_names(tree):
    for path in tree.paths(CPP, "tests/"):
        code = code_only(tree.files[path])
        for test in _TEST.finditer(code):
            suite, name = test.groups()
            words = words_of(name)
            opener = words[0] if words and words[0] in OPENERS else None
            if len(words) <= WORDS_MAX and opener is None:
                continue
            begins = f", begins with \"{opener}\"" if opener else ""
            yield Finding(path, line_of(code, test.start(2)), "test-name",
                          f"{suite}.{name}: {len(words)} words{begins}; say the behaviour in at "
                          f"most {WORDS_MAX} words, and begin with its subject or verb")


if __name__ == "__main__":
    counts = collections.Counter(
        os.path.dirname(finding.path)
        for finding in check_test_names(Tree.load(sys.argv[1] if len(sys.argv) > 1 else ".")))
    for folder, count in sorted(counts.items()):
        print(f"{count:6} {folder}")
    print(f"{sum(counts.values()):6} in all")
