#!/usr/bin/env python3
"""Tests of docs/generate.py, with a made-up program: generate_test.py GENERATE.PY"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

GENERATE = sys.argv.pop(1)

PROGRAM = """#!/bin/sh
case "$1" in
  --help) printf 'Do something.\\n  --size TEXT   %s\\n' "$(printf 'word %.0s' $(seq 30))" ;;
  --config) echo "prog: x.toml:1: unknown key no_such_key; the keys are: arena data" >&2; exit 2 ;;
  *) echo "no such verb" >&2; exit 2 ;;
esac
"""
STALE = "before\n<!-- help: prog --help -->\nold\n<!-- end help -->\nafter\n"


class Generate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "docs/reference").mkdir(parents=True)
        (self.root / "bin").mkdir()
        program = self.root / "bin/prog"
        program.write_text(PROGRAM, encoding="utf-8")
        program.chmod(0o755)
        self.page = self.root / "docs/reference/page.md"

    def generate(self, text, *flags):
        self.page.write_text(text, encoding="utf-8")
        return subprocess.run([sys.executable, GENERATE, "--root", self.root,
                               "--programs", self.root / "bin", *flags],
                              capture_output=True, text=True, timeout=30, check=False)

    def text(self):
        return self.page.read_text(encoding="utf-8")

    def test_writes_the_help_between_its_lines(self):
        done = self.generate(STALE)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = self.text().split("\n")
        self.assertEqual(lines[:4],
                         ["before", "<!-- help: prog --help -->", "```text", "Do something."])
        self.assertEqual(lines[-4:], ["```", "<!-- end help -->", "after", ""])
        self.assertNotIn("old", lines)

    def test_wraps_long_lines_below_their_text(self):
        self.generate(STALE)
        described = [line for line in self.text().split("\n") if "word" in line]
        self.assertGreater(len(described), 1)
        self.assertEqual({line.index("word") for line in described}, {16})
        self.assertLessEqual(max(len(line) for line in described), 100)

    def test_check_names_a_stale_page_and_keeps_it(self):
        done = self.generate(STALE, "--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("docs/reference/page.md: out of date", done.stderr)
        self.assertEqual(self.text(), STALE)

    def test_check_accepts_what_was_written(self):
        self.generate(STALE)
        written = self.text()
        done = self.generate(written, "--check")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_refuses_a_missing_or_failing_program(self):
        for command, reason in (("other --help", "is missing"), ("prog verb", "exit code 2")):
            done = self.generate(STALE.replace("prog --help", command))
            self.assertEqual(done.returncode, 1)
            self.assertIn(reason, done.stderr)

    def test_refuses_a_block_without_end(self):
        for unended in ("<!-- help: prog --help -->\nold\n",
                        "<!-- help: prog --help -->\nprose\n" + STALE):
            done = self.generate(unended)
            self.assertEqual(done.returncode, 1)
            self.assertIn("line 1: no line <!-- end help -->", done.stderr)
            self.assertEqual(self.text(), unended)

    def test_table_has_every_key_and_no_other(self):
        table = "<!-- keys: prog -->\n| key | default |\n|---|---|\n"
        full = self.generate(table + "| `arena` | 1 |\n| `data` | 2 |\n", "--check")
        self.assertEqual((full.returncode, full.stderr), (0, ""))
        wrong = self.generate(table + "| `arena` | 1 |\n| `disk` | 2 |\n", "--check")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("data has no row; disk is no key of prog", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
