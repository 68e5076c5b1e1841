"""Finds functions in C++ by their braces: good enough for code that clang-format has laid out."""

import re
from dataclasses import dataclass

from sources import code_only, line_of

_CONTAINER = re.compile(r"^(?:export\s+)?(?:inline\s+)?(?:typedef\s+)?"
                        r"(?:namespace|class|struct|union|enum|extern\s*\"\s*\")(?!\w)")
_NOISE = re.compile(r"\[\[.*?\]\]|alignas\s*\([^()]*\)|__attribute__\s*\(\(.*?\)\)|"
                    r"\b(?:public|private|protected)\s*:(?!:)|\b[A-Z0-9_]*_(?:API|EXPORT)\b",
                    re.DOTALL)


class UnbalancedBraces(Exception):
    pass


@dataclass(frozen=True)
class Function:
    head: str  # everything before the brace, on one line
    first_line: int
    last_line: int
    body: str

    @property
    def lines(self):
        return self.last_line - self.first_line + 1


def _strip_template(head):
    """`template <...>` and a requires clause's brackets have no say in what the brace opens."""
    while head.startswith("template"):
        depth, end = 0, len(head)
        for i, c in enumerate(head):
            depth += (c == "<") - (c == ">")
            if c == ">" and depth == 0:
                end = i + 1
                break
        head = head[end:].lstrip()
    return head


def _opens_initializer(code, brace):
    """`x_{1}`, `= {`, `({`, `, {`, `return {`: values, not blocks."""
    if brace > 0 and (code[brace - 1].isalnum() or code[brace - 1] in "_>]("):
        return True
    before = code[:brace].rstrip()
    return before.endswith(("=", "(", ",")) or re.search(r"\breturn$", before[-8:]) is not None


def _matching(code, brace):
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, brace):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise UnbalancedBraces(f"the brace of line {line_of(code, brace)} is never closed")


def find_functions(text):
    """All functions that are not inside another one; lambdas and local classes belong to theirs."""
    code = code_only(text)
    functions = []
    head_start = 0
    depth = 0
    at = 0
    separators = re.compile(r"[{};]")
    while match := separators.search(code, at):
        i = match.start()
        at = i + 1
        if match.group() == ";":
            head_start = at
        elif match.group() == "}":
            depth -= 1
            head_start = at
            if depth < 0:
                raise UnbalancedBraces(f"line {line_of(code, i)} closes what was never opened")
        elif _opens_initializer(code, i):
            at = _matching(code, i) + 1
        else:
            head = _strip_template(_NOISE.sub(" ", code[head_start:i]).strip())
            if head == "" or (_CONTAINER.match(head) and "(" not in head):
                depth += 1
                head_start = at
                continue
            end = _matching(code, i)
            begin = head_start + len(code[head_start:i]) - len(code[head_start:i].lstrip())
            functions.append(Function(" ".join(head.split()), line_of(code, begin),
                                      line_of(code, end), code[i:end + 1]))
            at = head_start = end + 1
    if depth != 0:
        raise UnbalancedBraces(f"{depth} braces are never closed")
    return functions
