#!/usr/bin/env python3
"""Tests of check_keys.py, with a made-up program"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).with_name("check_keys.py")
PROGRAM = """#!/bin/sh
[ "$1" = --config ] || exit 3
echo "prog: x.toml:1: unknown key no_such_key; the keys are: arena data" >&2
exit 2
"""
TABLE = "<!-- keys: prog -->\n| key | default |\n|---|---|\n"


class CheckKeys(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "docs/reference").mkdir(parents=True)
        program = self.root / "prog"
        program.write_text(PROGRAM, encoding="utf-8")
        program.chmod(0o755)

    def check(self, text):
        (self.root / "docs/reference/page.md").write_text(text, encoding="utf-8")
        return subprocess.run([sys.executable, CHECK, self.root, self.root], capture_output=True,
                              text=True, timeout=30, check=False)

    def test_a_table_of_all_keys_passes(self):
        done = self.check(TABLE + "| `arena` | 1 |\n| `data` | 2 |\n")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_missing_and_unknown_keys_are_named(self):
        done = self.check("\n" + TABLE + "| `arena` | 1 |\n| `disk` | 2 |\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("docs/reference/page.md:2: data has no row; disk is no key of prog",
                      done.stderr)

    def test_a_missing_program_is_named(self):
        done = self.check(TABLE.replace("prog", "other"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("other is missing", done.stderr)

    def test_documents_without_any_table_fail(self):
        done = self.check("no table\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no page has a table of keys", done.stderr)


if __name__ == "__main__":
    unittest.main()
