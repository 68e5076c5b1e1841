#!/usr/bin/env python3
"""Generates ckptd/_abi.py, the ctypes declarations, from the C headers of libckpt.

    declarations.py              write ckptd/_abi.py
    declarations.py --check      exit code 1 if ckptd/_abi.py differs from what the headers say
    declarations.py --layouts    print a C program that prints every size and offset of a struct
"""

import argparse
import pathlib
import re
import sys
import textwrap
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).resolve().parent
HEADERS = FOLDER.parent / "include" / "ckpt"
OUTPUT = FOLDER / "ckptd" / "_abi.py"
# ckpt_cuda.h belongs to another library.
NAMES = ("ckpt_status.h", "ckpt_units.h", "ckpt.h", "ckpt_liveness.h", "ckpt_hold.h",
         "ckpt_windows.h", "ckpt_direct.h", "ckpt_blobs.h", "ckpt_pieces.h", "ckpt_grow.h")

SCALARS = {"int": "c_int", "double": "c_double", "size_t": "c_size_t", "int32_t": "c_int32",
           "int64_t": "c_int64", "uint32_t": "c_uint32", "uint64_t": "c_uint64"}
IMPORTS = (("CFUNCTYPE", "POINTER", "Structure", "c_char_p", "c_double", "c_int", "c_int32"),
           ("c_int64", "c_size_t", "c_uint32", "c_uint64", "c_void_p"))
COLUMNS = 100
CALLBACK = re.compile(r"(?P<result>\w+)\s*\(\*(?P<name>\w+)\)\((?P<arguments>.*)\)", re.DOTALL)


class Refused(Exception):
    """A header has a construct that this program does not translate."""


class Function(NamedTuple):
    name: str
    result: str
    arguments: list


class Abi:
    """Declarations of all headers, as text of ctypes."""

    def __init__(self):
        self.constants = {}
        self.enums = set()
        self.opaque = set()
        self.structs = {}  # name -> [(field, type)]
        self.functions = []

    def read(self, text):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
        for name, value in re.findall(r"^#define (CKPT_\w+) (0x[0-9a-fA-F]+|\d+)u?$", text,
                                      re.MULTILINE):
            self.constants[name] = int(value, 0)
        text = re.sub(r"^#(?:[^\n\\]|\\.|\\\n)*", " ", text, flags=re.MULTILINE)
        for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", text, re.DOTALL):
            self.enums.add(name)
            for constant in re.findall(r"(\w+) = (\d+)", body):
                self.constants[constant[0]] = int(constant[1])
        self.opaque.update(re.findall(r"typedef struct \w+ (\w+);", text))
        structs = re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.DOTALL)
        for _, name in structs:
            self.structs[name] = []
        for body, name in structs:
            fields = [self.field(part) for part in body.split(";") if part.strip()]
            self.structs[name] = fields
        for declared in re.findall(r"CKPT_API ([^;]*);", text):
            self.functions.append(self.function(" ".join(declared.split())))

    def field(self, text):
        text = " ".join(text.split())
        if callback := CALLBACK.fullmatch(text):
            types = [self.result(callback["result"])]
            types += [self.type_of(self.split(part)[0])
                      for part in callback["arguments"].split(",")]
            return callback["name"], f"CFUNCTYPE({', '.join(types)})"
        kind, name = self.split(text)
        return name, self.type_of(kind)

    def function(self, text):
        found = re.fullmatch(r"(.*?)\s*(\w+)\((.*)\)", text)
        if not found:
            raise Refused(f"not a function: {text}")
        result, name, arguments = found.groups()
        types = [] if arguments == "void" else [self.type_of(self.split(part)[0])
                                                for part in arguments.split(",")]
        return Function(name, self.result(result), types)

    @staticmethod
    def split(text):
        """Splits `const char* name` into its type and its name."""
        found = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*", text)
        if not found:
            raise Refused(f"neither a field nor an argument: {text}")
        return found[1].strip(), found[2]

    def result(self, kind):
        return "None" if kind == "void" else self.type_of(kind)

    def type_of(self, kind):
        words = kind.replace("*", " * ").replace("const ", "").replace("struct ", "").split()
        name, stars = words[0], len(words) - 1
        if name in ("void", "char"):
            pointers = {"void": "c_void_p", "char": "c_char_p"}
            if stars == 1:
                return pointers[name]
            if stars == 2:  # an address that ckpt_free takes back
                return "POINTER(c_void_p)"
        elif stars <= 1 and (name in SCALARS or name in self.enums):
            scalar = SCALARS.get(name, "c_int")
            return f"POINTER({scalar})" if stars else scalar
        elif name in self.opaque and stars:
            return "c_void_p" if stars == 1 else "POINTER(c_void_p)"
        elif stars == 1:  # a struct, perhaps of a later header
            return f"POINTER({name})"
        raise Refused(f"type {kind}")


def wrapped(head, parts, tail):
    """`head`, the parts with commas, and `tail`: on one line, or with the parts below the head."""
    line = head + ", ".join(parts) + tail
    if len(line) <= COLUMNS:
        return [line]
    # No line ends inside a part: blanks of parts are hidden from textwrap.
    hidden = ", ".join(part.replace(" ", "\0") for part in parts) + tail
    body = textwrap.wrap(hidden, COLUMNS - 8, break_long_words=False, break_on_hyphens=False)
    return [head] + [" " * 8 + part.replace("\0", " ") for part in body]


def python_text(abi):
    lines = ['"""ctypes declarations of libckpt. Generated by declarations.py: do not edit."""', ""]
    lines += [f"from ctypes import {', '.join(part)}" for part in IMPORTS]
    lines.append("")
    lines += [f"{name} = {value}" for name, value in abi.constants.items()]
    for name in abi.structs:
        lines.append(f"class {name}(Structure): ...")
    for name, fields in abi.structs.items():
        parts = [f'("{field}", {kind})' for field, kind in fields]
        lines += ["", *wrapped(f"{name}._fields_ = [", parts, "]")]
    lines += ["", "# Name: (type of the result, types of the arguments)", "FUNCTIONS = {"]
    for function in abi.functions:
        tail = ",))," if len(function.arguments) == 1 else ")),"
        lines += wrapped(f'    "{function.name}": ({function.result}, (', function.arguments, tail)
    lines.append("}")
    return "\n".join(lines) + "\n"


def layouts_text(abi):
    lines = [f"#include <ckpt/{name}>" for name in NAMES] + ["#include <stdio.h>", "",
                                                             "int main(void) {"]
    for name, fields in abi.structs.items():
        lines.append(f'  printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'  printf("{name} {field} %zu %zu\\n", offsetof({name}, {field}), '
                  f"sizeof((({name}*)0)->{field}));" for field, _ in fields]
    lines += [f'  printf("{name} %zu\\n", sizeof({name}));' for name in sorted(abi.enums)]
    return "\n".join(lines + ["  return 0;", "}"]) + "\n"


def read_headers(folder=HEADERS):
    abi = Abi()
    for name in NAMES:
        abi.read((folder / name).read_text(encoding="utf-8"))
    return abi


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="Write nothing; fail if out of date")
    parser.add_argument("--layouts", action="store_true", help="Print the C program of layouts")
    options = parser.parse_args()
    abi = read_headers()
    if options.layouts:
        print(layouts_text(abi), end="")
        return 0
    text = python_text(abi)
    if not options.check:
        OUTPUT.write_text(text, encoding="utf-8")
        return 0
    if OUTPUT.is_file() and OUTPUT.read_text(encoding="utf-8") == text:
        return 0
    print(f"{OUTPUT.name} differs from the headers; run client/python/declarations.py",
          file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
