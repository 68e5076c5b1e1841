#!/usr/bin/env python3
"""Copies the results of ./dev gpu into the repository: results.py DIR [--root CHECKOUT]

Copies DIR/gpu.json to bench/results/gpu-DEVICE.json and writes the table gpu-DEVICE.md next to it.
The names of incomplete results end in -part, so that a part never replaces complete results."""

import argparse
import json
import pathlib
import re
import sys


class Refused(Exception):
    """A document that is no result, and why."""


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


def page(document, name):
    """Text of the page that belongs to bench/results/NAME."""
    measured = [row for row in document["results"] if row.get("value") is not None]
    others = [row for row in document["results"] if row.get("value") is None]
    passed = [row for row in others if row["verdict"] == "pass"]
    lines = [f"# GPU: {document['device']}", "",
             f"<!-- ./dev gpu-results and bench/tables.py write this page from {name}. -->", ""]
    if not document["whole"]:
        lines += ["Something was left out: this is a part of the evidence.", ""]
    lines += ["Rows and limits: [GPU benches](../../docs/benchmarks.md#gpu). What a GPU has shown: "
              "[GPU](../../docs/internals/gpu.md#evidence).", "",
              "| | |", "|---|---|",
              cells("command", f"`./dev gpu --budget {document['budget_seconds']} --out DIR`"),
              cells("commit", document["commit"]), cells("date", document["date"]),
              cells("driver, nvcc", f"{document['driver']}, {document['nvcc']}"),
              cells("time, pairs", f"{document['seconds']} s, {document['pairs']} pairs"), "",
              cells("bench", "value", "limit", "ratio", "bound", "verdict", ""),
              "|---|---:|---:|---:|---:|---|---|"]
    lines += [figures(row) for row in measured]
    lines += ["", f"{len(passed)} of {len(others)} rows without figures passed (build, checks, "
              "compute-sanitizer). The others:", "", cells("row", "verdict", "reason"),
              "|---|---|---|"]
    lines += [cells(row["what"], row["verdict"], row["reason"]) for row in others
              if row["verdict"] != "pass"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("."))
    arguments = parser.parse_args()
    try:
        document = read(arguments.folder / "gpu.json")
        target = arguments.root / "bench/results" / file_name(document)
        text = page(document, target.name)
        target.write_bytes((arguments.folder / "gpu.json").read_bytes())
        target.with_suffix(".md").write_text(text, encoding="utf-8")
    except Refused as refused:
        print(f"gpu-results: {refused}", file=sys.stderr)
        return 1
    print(f"gpu-results: {target} and {target.stem}.md are written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
