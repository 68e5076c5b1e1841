#!/usr/bin/env python3
"""Writes the C++ example of README.md into a file: extract.py README.md example.cc"""

import re
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as readme:
        blocks = re.findall(r"^```cpp\n(.*?)^```$", readme.read(), re.DOTALL | re.MULTILINE)
    if len(blocks) != 1:
        sys.exit(f"{sys.argv[1]}: {len(blocks)} C++ examples, expected one")
    with open(sys.argv[2], "w", encoding="utf-8") as example:
        example.write(blocks[0])


if __name__ == "__main__":
    main()
