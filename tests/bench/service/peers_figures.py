#!/usr/bin/env python3
"""Statistics, bounds and page of the bench of peers, on made-up turns: peers_figures.py ROOT"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "bench/service/peers"))

import bounds  # noqa: E402
import figures  # noqa: E402
import reference  # noqa: E402
import shapes  # noqa: E402
import subjects  # noqa: E402

PAIRS = 8


def turn(number=0, stall=1.0, durable=4.0, first=1.0, cold=2.0, pss=1000):
    wobble = 1 + 0.001 * (number % 3)
    return {"open_seconds": 0.1, "first_stall": first * wobble, "first_durable": durable,
            "restore_warm": cold, "restore_cold": cold * wobble, "pss_before": 500,
            "pss_peak": pss, "pss_between": pss // 2,
            "saves": [{"stall": stall * wobble, "durable": durable * wobble, "copy": 1.0 * wobble,
                       "cpu_seconds": 0.5}] * 2}


def turns(**values):
    return [turn(number, **values) for number in range(PAIRS)]


def runs(**own):
    return {"ckptd.Saver": turns(**own), "ckptd.dcp": turns(durable=0.1, cold=0.1),
            "DCP async (thread)": turns(first=8.0, durable=6.0, cold=3.0, pss=1100),
            "DCP async (process)": turns(first=5.0, durable=9.0, cold=3.5, pss=2000),
            "torch.save": turns(durable=5.0, cold=0.5)}


def verdicts(found, alone=(4.0, 4.1, 4.2)):
    rows = bounds.rows(found, list(alone))
    return {(row["what"], row["limit_name"]): row["verdict"] for row in rows}


class Figures(unittest.TestCase):
    def test_an_interval_has_the_median(self):
        values = [1.0, 5.0, 2.0, 4.0, 3.0]
        low, high = figures.median_interval(values)
        self.assertLess(low, 3.0)
        self.assertGreater(high, 3.0)
        self.assertEqual(figures.median_interval(values), [low, high])

    def test_a_verdict_needs_the_whole_interval(self):
        for interval, expected in (([0.9, 1.1], "pass"), ([1.05, 1.2], "inconclusive"),
                                   ([1.11, 1.2], "fail")):
            self.assertEqual(figures.verdict({"ratio_interval": interval}, 1.1), expected)

    def test_a_limit_that_moves_is_inconclusive(self):
        found = {"ratio_interval": [0.9, 1.0], "limit_self_interval": [0.99, 1.01]}
        self.assertEqual(figures.verdict_if_quiet(found, 1.1), "pass")
        found["limit_self_interval"] = [0.9, 1.01]
        self.assertEqual(figures.verdict_if_quiet(found, 1.1), "inconclusive")

    def test_a_moving_limit_hides_no_miss(self):
        found = {"ratio_interval": [1.2, 1.3], "limit_self_interval": [0.9, 1.01]}
        self.assertEqual(figures.verdict_if_quiet(found, 1.1), "fail")

    def test_pairs_of_different_numbers_are_refused(self):
        with self.assertRaises(ValueError):
            figures.compared([1.0, 2.0], [1.0, 2.0, 3.0])


class Bounds(unittest.TestCase):
    def test_each_row_takes_its_best_peer(self):
        self.assertEqual(verdicts(runs()), {
            ("stall of a warm save", "memcpy of the same bytes"): "pass",
            ("stall of the first save, after open", "DCP async (process)"): "pass",
            ("time to durable", "torch.save"): "pass",
            ("time to durable", "ckptbench save"): "pass",
            ("cold restore", "DCP async (thread)"): "pass",
            ("memory (PSS) at peak", "DCP async (thread)"): "pass"})

    def test_each_bound_can_be_missed(self):
        found = verdicts(runs(stall=1.2, first=2.0, durable=7.0, cold=4.0, pss=1300))
        self.assertEqual(set(found.values()), {"fail"}, found)

    def test_rows_without_a_measurement_say_so(self):
        found = verdicts({"ckptd.Saver": turns()}, alone=())
        self.assertEqual(sorted(found.values()), ["not measured"] * 5 + ["pass"])


class Shapes(unittest.TestCase):
    def test_tensors_have_the_bytes_asked_for(self):
        for count in (3 << 20, 4 << 20, 256 << 20, 2 << 30):
            for ranks in (1, 2, 4):
                found = shapes.of_bytes(count, ranks)
                self.assertEqual(sum(4 * shapes.product(shape) for _, shape in found), count)
                self.assertTrue(all(shape[0] % ranks == 0 for _, shape in found))
                self.assertEqual(len({name for name, _ in found}), len(found))

    def test_a_size_that_cannot_be_cut_is_refused(self):
        for count, ranks in ((1 << 20, 2), ((4 << 20) + 4, 2), (4 << 20, 3)):
            with self.assertRaises(ValueError):
                shapes.of_bytes(count, ranks)

    def test_ckptbench_saves_whole_units(self):
        for count, ranks in ((2 << 30, 4), (256 << 20, 2), (4 << 20, 2)):
            size, fragment = reference.shape_of(count, ranks)
            self.assertEqual((size, size % (fragment * ranks)), (count, 0))


class Page(unittest.TestCase):
    def document(self):
        found = runs(first=3.0)
        return {"bench": "peers", "shape": {"bytes": 4096}, "command": "./dev bench peers",
                "bounds": bounds.rows(found, []), "not_installed": ["safetensors"],
                "subjects": [bounds.of_subject(name, turns) for name, turns in found.items()]}

    def test_the_page_says_what_is_missed(self):
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder)
            (results / "peers.json").write_text(json.dumps(self.document()), encoding="utf-8")
            subprocess.run([sys.executable, ROOT / "bench/tables.py", "--results", results],
                           check=True)
            text = (results / "peers.md").read_text(encoding="utf-8")
        rows = {line.split("|")[1].strip(): line for line in text.splitlines() if "|" in line}
        self.assertIn("MISSED", rows["stall of the first save, after open"])
        self.assertIn("pass", rows["stall of a warm save"])
        self.assertIn("Not installed, so not measured: safetensors.", text)
        for subject in subjects.SUBJECTS[:2]:
            self.assertIn(subject.settings, text)


unittest.main(argv=sys.argv[:1])
