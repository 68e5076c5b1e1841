"""Finds functions and types in C++ by their braces: enough for code laid out by clang-format."""

import re
from dataclasses import dataclass
from functools import lru_cache

from sources import code_only, line_of

_CONTAINER = re.compile(r"^(?:export\s+)?(?:inline\s+)?(?:typedef\s+)?"
                        r"(?:namespace|class|struct|union|enum|extern\s*\"\s*\")(?!\w)")
_TYPE = re.compile(r"(?:typedef\s+)?(?:enum\s+)?(?:class|struct|union|enum)\s+")
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


@dataclass(frozen=True)
class Type:
    name: str  # with its namespaces and outer classes
    line: int
    body: str
    is_shared: bool  # not in an unnamed namespace: the name is the same in all files


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


@lru_cache(maxsize=None)  # several checks read each file
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


@lru_cache(maxsize=None)  # several checks read each file
def find_types(text):
    """All definitions of types with a name, outside of functions."""
    code = code_only(text)
    types, scopes = [], []  # scopes: names of what is open; None for an unnamed namespace
    at = head_start = 0
    while match := re.compile(r"[{};]").search(code, at):
        i = match.start()
        at = i + 1
        if match.group() == "{" and _opens_initializer(code, i):
            at = _matching(code, i) + 1
            continue
        if match.group() == "{":
            head = _strip_template(_NOISE.sub(" ", code[head_start:i]).strip())
            if head == "" or (_CONTAINER.match(head) and "(" not in head):
                scopes.append(_scope_name(head))
                if _TYPE.match(head) and scopes[-1]:
                    types.append(_type_of(code, i, scopes))
            else:
                at = _matching(code, i) + 1
        elif match.group() == "}":
            if not scopes:
                raise UnbalancedBraces(f"line {line_of(code, i)} closes what was never opened")
            scopes.pop()
        head_start = at
    return types


def _scope_name(head):
    """The name that a head of a namespace or type adds; "": none; None: an unnamed namespace."""
    if found := re.match(r"(?:inline\s+)?namespace\b\s*([\w:]*)", head):
        return found.group(1) or None
    if found := _TYPE.match(head):
        return re.split(r"\s+final\b|\s*(?<!:):(?!:)", head[found.end():])[0].replace(" ", "")
    return ""


def _type_of(code, brace, scopes):
    return Type("::".join(name for name in scopes if name), line_of(code, brace),
                code[brace + 1:_matching(code, brace)], None not in scopes)


def statements_of(body):
    """Statements of a body at its first depth, on one line each; a block in braces reads `{}`."""
    at = start = 0
    text = []
    while (match := re.compile(r"[{;]").search(body, at)) is not None:
        if match.group() == ";":
            yield " ".join("".join(text + [body[start:match.start()]]).split())
            text, at = [], match.end()
        else:
            text.append(body[start:match.start()] + "{}")
            at = _matching(body, match.start()) + 1
            # A method ends with its body; a member needs a semicolon.
            if re.match(r"\s*;", body[at:at + 80]) is None and ")" in text[-1]:
                yield " ".join("".join(text).split())
                text = []
        start = at
    if rest := " ".join("".join(text).split()):
        yield rest
