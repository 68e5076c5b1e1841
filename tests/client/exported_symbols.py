#!/usr/bin/env python3
"""Compares the dynamic symbols of the client libraries with the list beside this file.

A program that was linked with an older library needs every symbol under its version. So a line may
be added, and none may be removed or changed: exported_symbols.py NM LIST LIBRARY [LIBRARY ...]"""

import pathlib
import subprocess
import sys


def exported(nm, library):
    """Lines "libckpt.so ckpt_open@@CKPT_0", without the versions themselves."""
    out = subprocess.run([nm, "--dynamic", "--defined-only", "--with-symbol-versions", library],
                         check=True, capture_output=True, text=True).stdout
    name = pathlib.Path(library).name.split(".so")[0] + ".so"
    return {f"{name} {symbol}" for _, kind, symbol in map(str.split, out.splitlines())
            if kind != "A"}


def main(nm, listed, *libraries):
    known = set(pathlib.Path(listed).read_text(encoding="ascii").split("\n")) - {""}
    found = set().union(*(exported(nm, library) for library in libraries))
    for gone in sorted(known - found):
        print(f"{gone}: no longer exported; programs that use it would not start")
    for new in sorted(found - known):
        print(f"{new}: exported, and not in {listed}; add the line, or hide the symbol")
    return 1 if known != found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
