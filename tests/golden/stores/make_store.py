#!/usr/bin/env python3
"""Writes a golden store: make_store.py BIN OUT

BIN has the programs of the build that writes the store. OUT.tar.xz gets the data directory of ckptd
and OUT.json the answers of its ckptctl to questions about it. Later builds must open the store and
give the same answers (golden_store_test.py). A store that is committed is never made again."""

import collections
import json
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

SMALL = ["--ranks", "2", "--layers", "1", "--hidden", "8", "--heads", "2", "--kv-heads", "1",
         "--head-dim", "4", "--intermediate", "8", "--experts", "4", "--batch", "2", "--seq", "16",
         "--micro-batches", "1"]
PATIENCE_S = 60
# Questions about every run, besides its commits and its newest view.
RUN_VERBS = ("alarms", "keep", "experts")


class Store:
    """One ckptd at a time on one data directory."""

    def __init__(self, programs, folder):
        self.programs = pathlib.Path(programs)
        self.data = folder / "store"
        self.socket = f"unix:{folder / 'sock'}"
        self.config = folder / "ckptd.toml"
        self.daemon = None

    def start(self, **settings):
        settings = {"segment": "16MiB", "arena": "256MiB", "session_arena": "16MiB",
                    "warm_pool": "0", "disk_reserve": "16MiB", "scrub_interval": "0s", **settings}
        self.config.write_text("".join(f'{key} = "{value}"\n' for key, value in settings.items()))
        self.daemon = subprocess.Popen(
            [self.programs / "ckptd", "--config", self.config, "--data", self.data, "--listen",
             self.socket], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Answers as soon as the store has been recovered.
        end = time.monotonic() + PATIENCE_S
        while self.ctl("status", codes=range(256)) == "":
            assert self.daemon.poll() is None and time.monotonic() < end
            time.sleep(0.01)

    def stop(self):
        self.daemon.terminate()
        assert self.daemon.wait(PATIENCE_S) == 0

    def ctl(self, *arguments, codes=(0,)):
        done = subprocess.run([self.programs / "ckptctl", *arguments, "--socket", self.socket],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.returncode in codes, (arguments, done.returncode, done.stderr)
        return done.stdout

    def ask(self, *arguments):
        return json.loads(self.ctl(*arguments, "--json"))

    def train(self, run, steps, *more, check=True):
        done = subprocess.run(
            [self.programs / "moetrain", "run", "--socket", self.socket, "--run", run, "--steps",
             str(steps), "--checkpoint-every", "1", "--checkpoint-wait", "durable", *SMALL, *more],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0 or not check, done.stderr


def write(store):
    """Every kind of journal record that commands give. Only store-2026-11 has records Moved and the
    trial of age weights in trainer units: neither is written any more."""
    store.start()
    store.train("plain", 4)
    store.train("plain", 6, "--resume", "2")  # a second lineage
    store.train("partial", 6, "--experts-per-checkpoint", "1")
    store.train("gone", 2)
    store.ctl("tag", "plain~1@3", "before-the-fork")
    store.ctl("tag", "plain@5", "short-lived")
    store.ctl("untag", "plain", "short-lived")
    store.ctl("pin", "partial@2")
    store.ctl("pin", "partial@3")
    store.ctl("unpin", "partial@3")
    store.ctl("keep", "partial", "--keep-last", "2", "--keep-best", "loss:1")
    store.ctl("grant", "plain", "4242", "read", "prune")
    store.ctl("rm", "gone", "--yes")
    store.ctl("prune", "partial", "--yes")
    store.ctl("gc")
    store.stop()
    store.start(codec="delta")
    store.train("delta", 3)
    store.stop()
    # A learning rate of zero leaves the weights as they were: shared extents, and alarms.
    store.start(codec="zstd")
    store.train("zstd", 2, "--lr", "0")
    store.stop()
    store.start(alarms="refuse")
    store.train("refused", 2, "--lr", "0", check=False)
    store.stop()


def record_kinds(journal):
    """How many records of each kind, by its number in the union RecordBody of records.fbs. Trusts
    the bytes to be a journal as docs/reference/formats.md has it."""
    kinds, at = collections.Counter(), 0
    while at + 96 <= len(journal) and journal[at:at + 4] == b"CKJ1":
        batch_bytes, records = struct.unpack_from("<QI", journal, at + 40)
        here = at
        for _ in range(records):
            body_bytes, = struct.unpack_from("<I", journal, here + 12)
            body = here + 96
            table = body + struct.unpack_from("<I", journal, body)[0]
            vtable = table - struct.unpack_from("<i", journal, table)[0]
            kind_at, = struct.unpack_from("<H", journal, vtable + 4)
            kinds[journal[table + kind_at]] += 1
            here = body + (body_bytes + 7) // 8 * 8
        at += batch_bytes
    return {str(kind): count for kind, count in sorted(kinds.items())}


def answers(store):
    """The answers about the store, as {"VERB ARGUMENTS": document}."""
    asked = {"runs": store.ask("runs")}
    for entry in asked["runs"]:
        run = entry["run"]
        commits = store.ask("log", run, "--all")
        asked[f"log {run} --all"] = commits
        for verb in RUN_VERBS:
            asked[f"{verb} {run}"] = store.ask(verb, run)
        view = store.ask("show", f"{run}@latest")
        asked[f"show {run}@latest"] = view
    asked["verify"] = store.ask("verify")
    return asked


def main():
    programs, out = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        store = Store(programs, pathlib.Path(folder))
        write(store)
        with tarfile.open(f"{out}.tar.xz", "w:xz") as archive:
            archive.add(store.data, "store")
        kinds = record_kinds(store.data.joinpath("journal", "journal.log").read_bytes())
        store.start()
        document = {"record_kinds": kinds, "answers": answers(store)}
        out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        store.stop()


if __name__ == "__main__":
    main()
