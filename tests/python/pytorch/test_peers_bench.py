"""The bench of peers at a size at which figures mean nothing, and subjects that fail."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

import support

BENCH = support.ROOT / "bench/service/peers/peers.py"
PAIRS, SAVES = 2, 2
TIMES = ("open_seconds", "first_stall", "first_durable", "restore_warm", "restore_cold")


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.scratch = self.folder / "scratch"
        self.environment = dict(os.environ)
        if "CKPTD_INSTALLED" not in os.environ:
            self.searched(support.ROOT / "client/python")

    def searched(self, folder):
        before = self.environment.get("PYTHONPATH")
        self.environment["PYTHONPATH"] = f"{folder}:{before}" if before else str(folder)

    def bench(self, *arguments):
        done = subprocess.run(
            [sys.executable, BENCH, "--bytes", "4MiB", "--ranks", "2", "--pairs", str(PAIRS),
             "--saves", str(SAVES), "--dir", self.scratch, "--json", *arguments],
            capture_output=True, text=True, check=False, env=self.environment)
        self.assertEqual(list(self.scratch.iterdir()), [], "files were left")
        return done

    def fails(self, subjects, *words):
        done = self.bench("--subjects", subjects)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_every_subject_is_measured(self):
        done = self.bench()
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        measured = {one["name"] for one in document["subjects"]}
        self.assertEqual(measured | set(document["not_installed"]), {
            "ckptd.Saver", "ckptd.dcp", "DCP sync", "DCP async (thread)", "DCP async (process)",
            "torch.save", "safetensors"})
        self.assertEqual(set(document["runs"]), measured)
        for turns in document["runs"].values():
            self.assertEqual(len(turns), PAIRS)
            for turn in turns:
                self.check_turn(turn)
        self.check_bounds(document["bounds"])
        self.check_page(done.stdout)

    def check_turn(self, turn):
        self.assertEqual(turn["state_bytes"], 4 << 20)
        self.assertTrue(all(turn[what] >= 0 for what in TIMES), turn)
        self.assertEqual(len(turn["saves"]), SAVES)
        for save in turn["saves"]:
            self.assertTrue(0 < save["stall"] <= save["durable"] and save["copy"] > 0, save)
        self.assertTrue(turn["pss_before"] > 4 << 20, turn)
        self.assertTrue(turn["pss_peak"] >= turn["pss_between"] > turn["pss_before"] // 2, turn)

    def check_bounds(self, rows):
        self.assertEqual([row["pass_ratio"] for row in rows], [1.1, 0.25, 1.0, 1.1, 1.0, 1.1])
        for row in rows:
            if row["limit_name"] == "ckptbench save":
                self.assertEqual(row["verdict"], "not measured")
                continue
            low, high = row["ratio_interval"]
            self.assertTrue(0 < low <= row["ratio_to_limit"] <= high, row)
            self.assertIn(row["verdict"], ("pass", "fail", "inconclusive"))

    def check_page(self, text):
        results = self.folder / "results"
        results.mkdir()
        (results / "peers.json").write_text(text, encoding="utf-8")
        for flags in ([], ["--check"]):
            subprocess.run([sys.executable, support.ROOT / "bench/tables.py", "--results", results,
                            *flags], check=True)

    def test_a_rank_that_fails_is_named(self):
        package = self.folder / "packages/safetensors"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "torch.py").write_text(
            "def save_file(*_):\n    raise OSError('the disk is on fire')\n", encoding="utf-8")
        self.searched(package.parent)
        self.fails("ckptd.Saver,safetensors", "subject safetensors: rank ",
                   "OSError: the disk is on fire")

    def test_a_daemon_that_fails_is_named(self):
        program = self.folder / "ckptd"
        program.write_text("#!/bin/sh\necho no luck >&2\nexit 3\n", encoding="utf-8")
        program.chmod(0o755)
        self.environment["CKPTD_BIN_DIR"] = str(self.folder)
        self.fails("ckptd.Saver", "subject ckptd.Saver: ckptd has ended with 3", "no luck")

    def test_an_unknown_subject_is_refused(self):
        self.scratch.mkdir()
        done = self.bench("--subjects", "ckptd.Saver,tape")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("subject tape: is none of ckptd.Saver", done.stderr)


if __name__ == "__main__":
    unittest.main()
