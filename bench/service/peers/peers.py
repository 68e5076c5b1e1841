#!/usr/bin/env python3
"""Saves and restores of ckptd and of PyTorch's own ways, in turns, on one machine.

Run it with a Python that has PyTorch and the package ckptd: `./dev bench peers` does. Each turn of
a subject has fresh processes in a group of their own, the same tensors, ranks and disk, and counts
a save as durable after fsync. docs/benchmarks.md explains the figures."""

import argparse
import importlib.metadata
import json
import pathlib
import re
import shlex
import shutil
import signal
import sys
import tempfile

import bounds
import machine
import processes
import reference
import shapes
import subjects
import turn

ROOT = pathlib.Path(__file__).resolve().parents[3]
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
DISK_SPARE = 2 << 30  # segments and reserve of a ckptd


def size(text):
    found = re.fullmatch(r"([1-9]\d*)(KiB|MiB|GiB)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: give a size as in 2GiB")
    return int(found[1]) * UNITS[found[2]]


def at_least(least):
    def parse(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text}: give a number, at least {least}")
        return int(text)
    return parse


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0],
                                     prog="bench peers")
    parser.add_argument("--bytes", type=size, default=2 << 30, help="size of the state (2GiB)")
    parser.add_argument("--ranks", type=int, default=4, choices=shapes.RANKS, help="(4)")
    parser.add_argument("--pairs", type=at_least(2), default=8,
                        help="turns of each subject: pairs of ckptd and a peer (8)")
    parser.add_argument("--saves", type=at_least(1), default=3, help="warm saves of a turn (3)")
    parser.add_argument("--seed", type=int, default=1, help="of the state (1)")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "build/bench",
                        help="a folder on the disk to measure (build/bench)")
    parser.add_argument("--subjects", help="names, with commas between (all)")
    parser.add_argument("--ckptbench", help="ckptbench of the same build, for its row")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    found = parser.parse_args()
    try:
        shapes.of_bytes(found.bytes, found.ranks)
        names = found.subjects.split(",") if found.subjects else [
            one.name for one in subjects.SUBJECTS]
        found.chosen = [subjects.named(name.strip()) for name in names]
    except ValueError as error:
        parser.error(str(error))
    if bounds.OWN not in [one.name for one in found.chosen]:
        parser.error(f"--subjects: {bounds.OWN} is compared with each, so it cannot be left out")
    return found


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


def check_disk(settings):
    need = settings.bytes * (settings.saves + 2) * 11 // 10 + DISK_SPARE
    free = shutil.disk_usage(settings.dir).free
    if free < need:
        raise processes.Failed(f"folder {settings.dir}: {free >> 20} MiB are free, and a turn "
                               f"needs {need >> 20}; name another one with --dir")


def measure_turns(settings, measured, folder):
    """Turns by subject. The order of the subjects is reversed in every second round, so that the
    turns of any two are A B B A."""
    runs = {subject.name: [] for subject in measured}
    for number in range(settings.pairs):
        for subject in measured if number % 2 == 0 else reversed(measured):
            place = folder / "turn"
            place.mkdir()
            found = turn.Turn(subject, settings, place, number).run()
            runs[subject.name].append(found)
            last = found["saves"][-1]
            say(f"round {number + 1}/{settings.pairs}: {subject.name}: first stall "
                f"{found['first_stall']:.3f} s, stall {last['stall']:.3f} s, durable "
                f"{last['durable']:.3f} s, cold restore {found['restore_cold']:.3f} s")
    return runs


def measure(settings):
    before = machine.describe(settings.dir)
    measured = [one for one in settings.chosen if not one.missing()]
    alone = []

    def measure_alone(folder):
        if settings.ckptbench:
            say("ckptbench save")
            alone.extend(reference.measure(settings.ckptbench, folder, settings.bytes,
                                           settings.ranks))
    with tempfile.TemporaryDirectory(prefix="peers_", dir=settings.dir) as name:
        folder = pathlib.Path(name)
        measure_alone(folder)
        runs = measure_turns(settings, measured, folder)
        measure_alone(folder)
    left_out = [one.name for one in settings.chosen if one.missing()]
    return document(settings, before, runs, alone, left_out)


def document(settings, before, runs, alone, left_out):
    tensors = shapes.of_bytes(settings.bytes, settings.ranks)
    cache = sorted({found["cache"] for turns in runs.values() for found in turns})
    return {"bench": "peers", "machine": before, "command": command(),
            "commit": machine.commit(ROOT), "date": machine.today(),
            "shape": {"bytes": settings.bytes, "ranks": settings.ranks, "tensors": len(tensors),
                      "pairs": settings.pairs, "saves_per_turn": settings.saves,
                      "seed": settings.seed, "torch": importlib.metadata.version("torch"),
                      "cold_by": cache},
            "bounds": bounds.rows(runs, alone),
            "subjects": [bounds.of_subject(name, turns) for name, turns in runs.items()],
            "not_installed": left_out, "ckptbench_seconds": alone, "runs": runs}


def command():
    """The command line, with the names of files alone."""
    words = sys.argv[1:]
    if "--ckptbench" in words:  # ./dev adds it
        at = words.index("--ckptbench")
        del words[at:at + 2]
    words = [pathlib.Path(word).name if word.startswith("/") else word for word in words]
    return shlex.join(["./dev", "bench", "peers", *words])


def text(found):
    lines = []
    for row in found["bounds"]:
        line = f"{row['what']} against {row['limit_name']}: {row['verdict']}"
        if "ratio_to_limit" in row:
            low, high = row["ratio_interval"]
            line += (f"; ratio {row['ratio_to_limit']:.3f} [{low:.3f}, {high:.3f}], "
                     f"{row['rule']} {row['pass_ratio']}")
        lines.append(line)
    return "\n".join(lines)


def main():
    settings = options()
    # A bench that is stopped ends its processes and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        settings.dir.mkdir(parents=True, exist_ok=True)
        settings.dir = settings.dir.resolve()
        check_disk(settings)
        found = measure(settings)
    except (processes.Failed, OSError) as failed:
        say(failed)
        return 1
    print(json.dumps(found, indent=1) if settings.json else text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
