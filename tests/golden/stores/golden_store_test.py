#!/usr/bin/env python3
"""Opens every golden store with this build: golden_store_test.py BIN

A golden store is a data directory written by an older build (make_store.py), with that build's
answers of ckptctl. This build must give the same answers, from the stored catalog and from one that
is rebuilt from the journal; a run must resume. An answer may have new fields."""

import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import warnings

from make_store import Store

HERE = pathlib.Path(__file__).parent
# Kinds of record that a golden store must have, by number in the union RecordBody of records.fbs:
# all but CommitDamaged (8), which makes verify fail.
KINDS = set(range(1, 20)) - {8}


def differences(expected, found, path=""):
    """The places at which `found` lacks or contradicts something of `expected`."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key, value in expected.items():
            if key not in found:
                yield f"{path}.{key}: missing"
            else:
                yield from differences(value, found[key], f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found)):
            yield from differences(one, other, f"{path}[{index}]")
    elif expected != found:
        yield f"{path}: {found!r} instead of {expected!r}"


class GoldenStores(unittest.TestCase):
    programs = None

    def expect_answers(self, store, expected):
        for question, answer in expected.items():
            self.assertEqual(list(differences(answer, store.ask(*question.split()))), [], question)

    def test_differences_are_found(self):
        for expected, found, count in (({"a": 1}, {"a": 1, "b": 2}, 0), ({"a": 1}, {"b": 1}, 1),
                                       ([1, 2], [1], 1), ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, 1)):
            self.assertEqual(len(list(differences(expected, found))), count, (expected, found))

    def test_every_golden_store_opens(self):
        archives = sorted(HERE.glob("*.tar.xz"))
        self.assertTrue(archives)
        kinds = set()
        for path in archives:
            with self.subTest(path.name), tempfile.TemporaryDirectory() as folder:
                golden = json.loads(path.with_name(path.name.removesuffix(".tar.xz") + ".json")
                                    .read_text())
                kinds |= {int(kind) for kind in golden["record_kinds"]}
                with tarfile.open(path) as archive:
                    archive.extractall(folder)
                store = Store(self.programs, pathlib.Path(folder))
                store.start()
                try:
                    self.expect_answers(store, golden["answers"])
                    store.ctl("rebuild")
                    self.expect_answers(store, golden["answers"])
                    for run in ("partial", "delta"):
                        store.train(run, 7, "--resume", "latest", "--new-data")
                        self.assertEqual(store.ask("log", run)[0]["step"], 7)
                    self.assertEqual(store.ask("verify")["errors"], [])
                finally:
                    store.stop()
        self.assertEqual(KINDS - kinds, set())


if __name__ == "__main__":
    # Python 3.12 and 3.13 warn that an archive may write anywhere; these are the project's own.
    warnings.simplefilter("ignore", DeprecationWarning)
    GoldenStores.programs = sys.argv.pop(1)
    unittest.main()
