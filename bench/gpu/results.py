#!/usr/bin/env python3
"""Takes what ./dev gpu found into the repository: results.py DIR [--root CHECKOUT]

Copies DIR/gpu.json to bench/results/gpu-DEVICE.json, or gpu-DEVICE-part.json if something was left
out, so that a part never replaces the whole. Writes the tables between the markers of
bench/README.md anew, from all bench/results/gpu-*.json."""

import argparse
import json
import pathlib
import re
import sys

BEGIN, END = "<!-- gpu-results: begin -->", "<!-- gpu-results: end -->"


class Refused(Exception):
    """Why a document is no result."""


def read(path):
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from error
    if document.get("status") != "complete":
        raise Refused(f"{path}: its status is '{document.get('status')}', not 'complete'")
    if document.get("device", "emulated") == "emulated":
        raise Refused(f"{path}: figures of no device, or of an emulated one, are no results")
    return document


def file_name(document):
    device = re.sub("[^a-z0-9]+", "-", document["device"].lower()).strip("-")
    return f"gpu-{device}{'' if document['whole'] else '-part'}.json"


def cells(*texts):
    return "| " + " | ".join(str(text).replace("|", "\\|") for text in texts) + " |"


def figures(row):
    low, high = row["ratio_interval"]
    bound = f"{row['pass_ratio']:.2f}" if row["pass_ratio"] else ""
    if bound and not row["must"]:
        bound += ", an aim"
    return cells(row["what"], f"{row['value']:.2f} {row['unit']}", f"{row['limit']:.2f}",
                 f"{row['ratio_to_limit']:.3f} [{low:.3f}, {high:.3f}]", bound, row["verdict"],
                 row["reason"])


def tables(document, name):
    measured = [row for row in document["results"] if row.get("value") is not None]
    others = [row for row in document["results"] if row.get("value") is None]
    passed = [row for row in others if row["verdict"] == "pass"]
    lines = [f"#### {document['device']}",
             f"Commit {document['commit']}, {document['date']}, driver {document['driver']}, nvcc "
             f"{document['nvcc']}, {document['pairs']} pairs, {document['seconds']} s of a budget "
             f"of {document['budget_seconds']}. All runs: `results/{name}`.", ""]
    if not document["whole"]:
        lines += ["Something was left out: this is a part of the evidence.", ""]
    lines += [cells("bench", "value", "limit", "ratio", "bound", "verdict", ""),
              "|---|---|---|---|---|---|---|"]
    lines += [figures(row) for row in measured]
    lines += ["", f"{len(passed)} of {len(others)} rows without figures passed (build, checks, "
              "compute-sanitizer). The others:", "", cells("row", "verdict", "reason"),
              "|---|---|---|"]
    lines += [cells(row["what"], row["verdict"], row["reason"]) for row in others
              if row["verdict"] != "pass"]
    return lines + [""]


def write_tables(root):
    readme = root / "bench/README.md"
    text = readme.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise Refused(f"{readme}: must have the lines {BEGIN} and {END} once, in this order")
    lines = []
    for path in sorted((root / "bench/results").glob("gpu-*.json")):
        whole = path.with_name(path.name.replace("-part.json", ".json"))
        if whole == path or not whole.exists():  # a part matters only while there is no whole
            lines += tables(read(path), path.name)
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    readme.write_text(before + "\n".join([BEGIN, *lines, END]) + after, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("."))
    arguments = parser.parse_args()
    try:
        document = read(arguments.folder / "gpu.json")
        target = arguments.root / "bench/results" / file_name(document)
        target.write_bytes((arguments.folder / "gpu.json").read_bytes())
        write_tables(arguments.root)
    except Refused as refused:
        print(f"gpu-results: {refused}", file=sys.stderr)
        return 1
    print(f"gpu-results: {target} and bench/README.md are written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
