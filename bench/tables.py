#!/usr/bin/env python3
"""Writes the page of tables for each JSON file of bench/results: tables.py [--check]

--check changes nothing, and exits with 1 if a page is missing, stale or without results."""

import argparse
import json
import pathlib
import sys

from result_page import head

ROOT = pathlib.Path(__file__).resolve().parent.parent
for folder in ("research", "service", "service/gpu"):
    sys.path.insert(0, str(ROOT / "bench" / folder))

import peers_page  # noqa: E402
import research_pages  # noqa: E402
import results as gpu  # noqa: E402
import service_pages  # noqa: E402
import torch_cuda_page  # noqa: E402

PAGES = {**service_pages.PAGES, **research_pages.PAGES, "peers": peers_page.PAGE,
         "torch-cuda": torch_cuda_page.PAGE}
# Pages of other programs, which have a --check of their own.
ELSEWHERE = {"relayout": "bench/research/relayout.py", "sharded": "bench/research/sharded.py",
             "simulation": "bench/research/simulation.py",
             "simulation-sharded": "bench/research/simulation_sharded.py"}
# Results that the page of other results shows.
SHOWN_BY = {"kills-sharded": "sharded"}


class Refused(Exception):
    """The reason why no page can be made of a result."""


def page(path):
    """The text of the page of one JSON file."""
    name = path.stem
    if not name.startswith("gpu-") and name not in PAGES:
        raise Refused(f"{path.name}: bench/tables.py knows no bench of this name; add a page")
    try:
        if name.startswith("gpu-"):
            return gpu.page(gpu.read(path), path.name)
        title, about, command, tables = PAGES[name]
        document = json.loads(path.read_text(encoding="utf-8"))
        lines = head(name, title, about, document, command) + tables(document)
    except (OSError, ValueError) as error:
        raise Refused(f"{path.name}: {error}") from error
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise Refused(f"{path.name}: its shape is not that of {name}: {error!r}") from error
    return "\n".join(lines) + "\n"


def stale(results):
    """A sentence for each page that is not the one of its results."""
    for path in sorted(results.glob("*.json")):
        written = path.with_name(SHOWN_BY.get(path.stem, path.stem) + ".md")
        if not written.exists():
            program = ELSEWHERE.get(written.stem, "bench/tables.py")
            yield f"{written.name}: is missing; run {program}"
        elif written.stem not in ELSEWHERE:
            if written.read_text(encoding="utf-8") != page(path):
                yield f"{written.name}: not that of {path.name}; run bench/tables.py"
    for written in sorted(results.glob("*.md")):
        if written.stem not in ELSEWHERE and not written.with_suffix(".json").exists():
            yield f"{written.name}: there is no {written.stem}.json"


def write(results):
    for path in sorted(results.glob("*.json")):
        if path.stem not in ELSEWHERE and path.stem not in SHOWN_BY:
            path.with_suffix(".md").write_text(page(path), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing, compare")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results")
    options = parser.parse_args()
    try:
        if not options.check:
            write(options.results)
            return 0
        found = list(stale(options.results))
    except (Refused, gpu.Refused) as refused:
        found = [str(refused)]
    for sentence in found:
        print(f"tables: {sentence}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
