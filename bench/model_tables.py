"""Tables of README.md that come from files: parameters with their sources, published results."""

import csv
import re

LINE = re.compile(r"^(\w+) = ([^\s#]+)\s*(?:# (.*))?$")


def read_parameters(path):
    """[(section, key, value, source)] of a model file, in its order."""
    found = []
    section = ""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("["):
                section = line[1:line.index("]")]
            match = LINE.match(line.strip())
            if match:
                key, value, source = match.groups()
                found.append((section, key, value, source or "the heading of its section"))
    return found


def print_parameters(columns):
    """One row for each parameter; columns: {heading: path}, files with the same keys."""
    files = {heading: {(s, k): (v, c) for s, k, v, c in read_parameters(path)}
             for heading, path in columns.items()}
    print("\n| parameter | " + " | ".join(f"{heading} | source" for heading in files) + " |")
    print("|---|" + "---:|---|" * len(files))
    for section, key in next(iter(files.values())):
        cells = [f"{values[section, key][0]} | {values[section, key][1]}"
                 for values in files.values()]
        print(f"| `{section}.{key}` | " + " | ".join(cells) + " |")


def read_published(path):
    """Rows of a CSV file as dictionaries; numbers are numbers. Lines with # are comments."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))

    def value(text):
        try:
            return float(text)
        except ValueError:
            return text
    return [{key: value(text) for key, text in row.items()} for row in rows]
