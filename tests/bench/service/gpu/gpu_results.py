#!/usr/bin/env python3
"""bench/service/gpu/results.py: gpu_results.py RESULTS_PY"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

RESULTS = sys.argv[1]

PAGE = "gpu-nvidia-a100-sxm4-80gb.md"
PART = "gpu-nvidia-a100-sxm4-80gb-part.md"


def measured(what, **fields):
    return {"what": what, "unit": "GB/s", "value": 54.41, "limit": 55.21, "ratio_to_limit": 0.984,
            "ratio_interval": [0.982, 0.988], "pass_ratio": 0.95, "must": True, "verdict": "pass",
            "reason": ""} | fields


def document(**fields):
    return {"status": "complete", "whole": True, "device": "NVIDIA A100-SXM4 (80GB)",
            "commit": "abc", "date": "2025-01-01T00:00Z", "driver": "580.1", "nvcc": "release 13.0",
            "pairs": 11, "seconds": 300, "budget_seconds": 540,
            "results": [
                {"what": "build", "verdict": "pass", "reason": "", "seconds": 40},
                {"what": "compute-sanitizer", "verdict": "skipped", "reason": "no | time left"},
                measured("device to arena"),
                measured("unpack", pass_ratio=None, verdict="measured"),
                measured("delta", pass_ratio=0.85, must=False, verdict="below aim"),
                # A bench that failed has fields of figures, and no figures.
                {"what": "adamw", "unit": "GB/s", "pass_ratio": 0.85, "must": False,
                 "verdict": "fail", "reason": "lost"}]} | fields


class Results(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "bench/results").mkdir(parents=True)
        (self.root / "out").mkdir()

    def publish(self, found):
        (self.root / "out/gpu.json").write_text(json.dumps(found), encoding="utf-8")
        return subprocess.run([sys.executable, RESULTS, self.root / "out", "--root", self.root],
                              capture_output=True, text=True, check=False)

    def page(self, name=PAGE):
        return (self.root / "bench/results" / name).read_text(encoding="utf-8")

    def results(self):
        return sorted(path.name for path in (self.root / "bench/results").iterdir())

    def test_writes_file_and_table(self):
        done = self.publish(document())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.results(), ["gpu-nvidia-a100-sxm4-80gb.json", PAGE])
        text = self.page()
        self.assertTrue(text.startswith("# GPU: NVIDIA A100-SXM4 (80GB)\n"), text)
        self.assertIn("| commit | abc |\n| date | 2025-01-01T00:00Z |\n", text)
        self.assertIn("| device to arena | 54.41 GB/s | 55.21 | 0.984 [0.982, 0.988] | 0.95 | pass "
                      "|  |\n", text)
        self.assertIn("| unpack | 54.41 GB/s | 55.21 | 0.984 [0.982, 0.988] |  | measured |", text)
        self.assertIn("| 0.85, an aim | below aim |", text)
        self.assertIn("1 of 3 rows without figures passed", text)
        self.assertIn("| compute-sanitizer | skipped | no \\| time left |\n", text)
        self.assertIn("| adamw | fail | lost |\n", text)

    def test_same_device_overwrites_its_page(self):
        self.publish(document())
        first = self.page()
        self.publish(document(commit="def"))
        self.assertEqual(self.page(), first.replace("| commit | abc |", "| commit | def |"))

    def test_part_never_replaces_the_whole(self):
        self.publish(document(commit="whole"))
        whole = self.page()
        self.publish(document(whole=False, commit="part"))
        self.assertEqual(self.page(), whole)
        self.assertNotIn("Something was left out", whole)
        self.assertIn("Something was left out", self.page(PART))
        self.assertIn("| commit | part |", self.page(PART))

    def test_refuses_invalid_results(self):
        for found, why in ((document(status="running"), "'running'"),
                           (document(status="no device"), "'no device'"),
                           (document(device="emulated"), "emulated"),
                           ([], "status")):
            with self.subTest(why):
                done = self.publish(found if found else {"results": []})
                self.assertEqual(done.returncode, 1)
                self.assertIn(why, done.stderr)
                self.assertEqual(self.results(), [])


unittest.main(argv=sys.argv[:1])
