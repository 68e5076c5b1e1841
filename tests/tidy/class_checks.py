"""Sizes that show a class or a header with more than one idea, and types defined twice."""

import re

from functions import find_functions, find_types, statements_of, UnbalancedBraces
from sources import CPP, Finding

HEADER_LINES_MAX = 300
MUTABLE_MEMBERS_MAX = 25
DAEMON_LINES_MAX = 300
FUNCTION_LINES_P95_MAX = 30

_PRODUCT = ("ckptd/", "client/", "formats/", "kernels/", "trainer/")
_NO_MEMBER = re.compile(r"^(?:static|constexpr|inline|using|friend|typedef|enum|template|explicit|"
                        r"virtual|class|struct|union|public|private|protected)\b")
_ACCESS = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")
# A declaration of a method; group 1 is `const` where the method has it.
_METHOD = re.compile(r"\)\s*(const)?\s*&{0,2}\s*(?:noexcept)?\s*(?:override|final)?\s*"
                     r"(?:= \w+|\{|$)")


def check_header_lengths(tree):
    """The headers of the C and C++ ABI may be longer: users read one file."""
    for path in tree.paths((".h", ".hpp")):
        lines = tree.files[path].count("\n")
        if lines > HEADER_LINES_MAX and not path.startswith("client/include/"):
            yield Finding(path, lines, "header-length",
                          f"{lines} lines; split it by idea (at most {HEADER_LINES_MAX})")
    lines = tree.files.get("ckptd/daemon.cc", "").count("\n")
    if lines > DAEMON_LINES_MAX:
        yield Finding("ckptd/daemon.cc", lines, "daemon-length",
                      f"{lines} lines; Daemon only routes (at most {DAEMON_LINES_MAX})")


def check_usual_function_length(tree):
    """Most functions are short: 19 of 20 in the product are at most this long."""
    lengths = sorted(function.lines for path in tree.paths((".h", ".hpp", ".c", ".cc"))
                     if path.startswith(_PRODUCT)
                     for function in _readable(find_functions, tree.files[path]))
    if not lengths:
        return
    p95 = lengths[(len(lengths) - 1) * 95 // 100]
    if p95 > FUNCTION_LINES_P95_MAX:
        yield Finding("CMakeLists.txt", 1, "usual-function-length",
                      f"95 % of the functions have up to {p95} lines; shorten the longest "
                      f"(at most {FUNCTION_LINES_P95_MAX})")


def check_class_members(tree):
    """Counts members that change, of types with behaviour."""
    for path in tree.paths((".h", ".hpp", ".cc")):
        for kind in _readable(find_types, tree.files[path]):
            members, is_value = _members(kind.body)
            if members > MUTABLE_MEMBERS_MAX and not is_value:
                yield Finding(path, kind.line, "class-members",
                              f"{kind.name} has {members} members that change; give some a "
                              f"class of their own (at most {MUTABLE_MEMBERS_MAX})")


def check_types_are_defined_once(tree):
    """Two definitions of a type may be linked into one program, which then runs either's code."""
    files = {}
    for path in tree.paths(CPP):
        for kind in _readable(find_types, tree.files[path]):
            if kind.is_shared:
                files.setdefault(kind.name, {}).setdefault(path, kind.line)
    for name, places in sorted(files.items()):
        first, *others = sorted(places)
        for path in others:
            yield Finding(path, places[path], "type-defined-twice",
                          f"{name} is defined in {first}, too; share one header, or rename it")


def _readable(find, text):
    """Unbalanced braces are reported by the check of function lengths."""
    try:
        return find(text)
    except UnbalancedBraces:
        return []


def _members(body):
    """(members that change, True for a plain value) of a type; nested types count for themselves.

    A plain value has public members and no method that changes them.
    """
    members, is_value = 0, True
    for statement in statements_of(_ACCESS.sub(" ", body)):
        if not statement or _NO_MEMBER.match(statement):
            continue
        declared = _without_templates(statement)
        method = _METHOD.search(declared)
        if method is not None:
            is_special = re.match(r"~|\w+\s*\(", declared) or "operator" in declared
            is_value = is_value and bool(method.group(1) or is_special)
        elif not re.search(r"\bconst\b[^*]*$|&", re.split(r"[={]", declared)[0]):
            members += 1
            is_value = is_value and re.search(r"\w_\s*(?:[={\[]|$)", declared) is None
    return members, is_value


def _without_templates(statement):
    while (shorter := re.sub(r"<[^<>]*>", "", statement)) != statement:
        statement = shorter
    return statement
