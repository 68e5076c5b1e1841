#!/usr/bin/env python3
"""bench/tables.py, on copies of the recorded results: result_tables.py TABLES_PY"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TABLES = pathlib.Path(sys.argv[1]).resolve()
RECORDED = TABLES.parent / "results"
ELSEWHERE = ("relayout", "sharded", "kills-sharded", "simulation", "simulation-sharded")


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)
        for path in RECORDED.glob("*.json"):
            if path.stem not in ELSEWHERE:
                shutil.copy(path, self.results)

    def tables(self, *arguments):
        return subprocess.run(
            [sys.executable, TABLES, "--results", self.results, *arguments],
            capture_output=True, text=True, check=False)

    def write(self):
        done = self.tables()
        self.assertEqual(done.returncode, 0, done.stderr)

    def refused(self, *words):
        before = {path.name: path.read_bytes() for path in self.results.iterdir()}
        done = self.tables("--check")
        self.assertEqual(done.returncode, 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(before,
                         {path.name: path.read_bytes() for path in self.results.iterdir()})

    def edit(self, name, change):
        path = self.results / name
        document = json.loads(path.read_text(encoding="utf-8"))
        change(document)
        path.write_text(json.dumps(document), encoding="utf-8")

    def test_written_pages_are_current(self):
        self.write()
        self.assertEqual(self.tables("--check").returncode, 0)
        self.assertEqual({path.stem for path in self.results.glob("*.md")},
                         {path.stem for path in self.results.glob("*.json")})

    def test_a_page_has_the_figures_of_its_results(self):
        self.edit("save.json", lambda found: found.update(
            value=2.5e9, verdict="fail", command="ckptbench save", commit="abc", date="2026-01-01"))
        self.write()
        text = (self.results / "save.md").read_text(encoding="utf-8")
        for line in ("| ckptd | 2.50 GB/s |", "| verdict | fail |",
                     "| command | `ckptbench save` |", "| commit | abc |", "| date | 2026-01-01 |"):
            self.assertIn(line + "\n", text)

    def test_reports_missing_commit_and_date(self):
        self.write()
        self.assertIn("| commit, date | not recorded in save.json |\n",
                      (self.results / "save.md").read_text(encoding="utf-8"))

    def test_finds_a_page_that_was_edited(self):
        self.write()
        page = self.results / "stall.md"
        text = page.read_text(encoding="utf-8")
        edited = re.sub(r"(?<=\| )\d+ ms", "98765 ms", text, count=1)
        self.assertNotEqual(edited, text)
        page.write_text(edited, encoding="utf-8")
        self.refused("stall.md", "bench/tables.py")

    def test_finds_results_that_are_newer_than_their_page(self):
        self.write()
        self.edit("kills.json", lambda found: found["rows"][0].update(value=0.9))
        self.refused("kills.md")

    def test_finds_a_missing_page_and_one_without_results(self):
        self.write()
        (self.results / "pec.md").unlink()
        (self.results / "codecs.json").unlink()
        self.refused("pec.md: is missing", "there is no codecs.json")

    def test_requires_pages_of_other_programs(self):
        self.write()
        (self.results / "relayout.json").write_text("{}", encoding="utf-8")
        self.refused("relayout.md: is missing; run bench/research/relayout.py")
        (self.results / "relayout.md").touch()
        (self.results / "kills-sharded.json").write_text("{}", encoding="utf-8")
        self.refused("sharded.md: is missing; run bench/research/sharded.py")

    def test_ignores_pages_without_results(self):
        self.write()
        (self.results / "sharded.md").write_text("nothing measured yet", encoding="utf-8")
        self.assertEqual(self.tables("--check").returncode, 0)

    def test_refuses_results_it_cannot_read(self):
        self.write()
        for name, text, word in (("save.json", "{", "save.json"),
                                 ("save.json", "[]", "save.json"),
                                 ("save.json", "{}", "its shape is not that of save"),
                                 ("unheard.json", "{}", "no bench of this name"),
                                 ("gpu-x.json", '{"status": "running"}', "'running'"),
                                 ("gpu-x.json", '{"status": "complete", "device": "A100"}',
                                  "its shape"),
                                 ("gpu-x.json", "[]", "gpu-x.json")):
            with self.subTest(name=name, text=text):
                path = self.results / name
                kept = path.read_bytes() if path.exists() else None
                path.write_text(text, encoding="utf-8")
                path.with_suffix(".md").touch()
                self.refused(word)
                path.unlink() if kept is None else path.write_bytes(kept)
                if kept is None:
                    path.with_suffix(".md").unlink()

    def test_a_cell_cannot_break_its_table(self):
        self.edit("kills.json", lambda found: found["rows"][0].update(what="a | b\n| c"))
        self.write()
        text = (self.results / "kills.md").read_text(encoding="utf-8")
        self.assertIn("| one | a \\| b \\| c |", text)


unittest.main(argv=sys.argv[:1])
