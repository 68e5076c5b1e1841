"""Generated tables in bench/results: from results in JSON and from files of parameters."""

import csv
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77  # for ctest
LINE = re.compile(r"^(\w+) = ([^\s#]+)\s*(?:# (.*))?$")


def cells(*texts):
    return "| " + " | ".join(str(text) for text in texts) + " |"


def head(*names, left=1):
    """The first two lines of a table. Columns after the first `left` ones are aligned right."""
    return [cells(*names), "|" + "---|" * left + "---:|" * (len(names) - left)]


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


def parameter_table(columns):
    """One row for each parameter; columns: {heading: path}, files with the same keys."""
    files = {heading: {(s, k): (v, c) for s, k, v, c in read_parameters(path)}
             for heading, path in columns.items()}
    lines = ["| parameter | " + " | ".join(f"{heading} | source" for heading in files) + " |",
             "|---|" + "---:|---|" * len(files)]
    for section, key in next(iter(files.values())):
        values = [text for of_file in files.values() for text in of_file[section, key]]
        lines.append(cells(f"`{section}.{key}`", *values))
    return lines


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


def write_tables(results, render, check):
    """Writes the page that belongs to `results`, a JSON file; render(document) returns its lines.

    `check`: changes nothing. Returns an exit status: 0, 77 without results, or an error message."""
    if not results.exists():
        print(f"skipped: no {results}", file=sys.stderr)
        return SKIPPED
    page = results.with_suffix(".md")
    text = "\n".join(render(json.loads(results.read_text(encoding="utf-8")))) + "\n"
    if not check:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    return f"{page}: its tables are not those of {results}; run {pathlib.Path(sys.argv[0]).name}"
