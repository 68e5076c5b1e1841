#!/usr/bin/env python3
"""The course of ./dev gpu, over programs that do what a test wants: gpu_evidence.py SOURCES BIN

BIN has the real programs, built for the emulated device.
One error loses one row, whatever it is; the document and the table say what there was no time for,
what this machine lacks, and what failed."""

import glob
import os
import shutil
import subprocess
import sys
import unittest

from gpu_stubs import PASSES, Checkout, begun, row

SOURCES, BIN = sys.argv[1:3]
HANGS = "exec tail -f /dev/null"
DIES = "kill -SEGV $$"
# For tests of a machine without a GPU: stub programs cannot hide the GPU of this machine.
WITHOUT_GPU = unittest.skipIf(glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/dxg"),
                              "this machine has a GPU")


class Evidence(unittest.TestCase):
    def setUp(self):
        self.checkout = Checkout(self, SOURCES)

    def test_everything_passes(self):
        done = self.checkout.run(CKPT_COMMIT="abc")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = self.checkout.document()
        self.assertEqual(document["status"], "complete")
        self.assertEqual(document["lacks"], [])
        self.assertTrue(document["whole"])
        self.assertEqual((document["commit"], document["device"], document["pairs"]),
                         ("abc", "Some GPU", 11))
        self.assertEqual(self.checkout.rows() | {"build": "", "client and trainer": ""}, {
            "build": "",
            "training: steps": ("pass", "40 checks on the GPU, 0 found something, seed 7"),
            "NCCL: a group of one rank": ("pass",
                                          "40 checks on the GPU, 0 found something, seed 7"),
            "kernels: pack": ("pass", "40 checks on the GPU, 0 found something, seed 7"),
            "kernels: sums": ("pass", "40 checks on the GPU, 0 found something, seed 7"),
            "packing": ("pass", ""),
            "compute-sanitizer memcheck, gpu_check": ("pass",
                                                      "2 groups clean, 80 checks on the GPU"),
            "compute-sanitizer memcheck, gpu_train_check": ("pass",
                                                            "1 groups clean, 40 checks on the GPU"),
            "compute-sanitizer racecheck, gpu_check": ("pass",
                                                       "2 groups clean, 80 checks on the GPU, "
                                                       "none with products in bf16"),
            "compute-sanitizer synccheck, gpu_check": ("pass",
                                                       "2 groups clean, 80 checks on the GPU"),
            "compute-sanitizer initcheck, gpu_check": ("pass",
                                                       "2 groups clean, 80 checks on the GPU, "
                                                       "none with products in bf16"),
            "client and trainer": "",
        })
        self.assertEqual(self.checkout.rows()["client and trainer"][0], "skipped")
        self.assertTrue(done.stdout.endswith(
            "bounds that must hold: 1 shown, 0 missed, 0 inconclusive; all else: 10 passed, 0 "
            "failed, 1 skipped (0 for lack of time), which shows nothing\n"), done.stdout)
        self.assertIn("=== kernels: pack\na_check: seed 7", self.checkout.log())
        self.assertEqual(sorted(os.listdir(self.checkout.root / "out")), ["gpu.json", "gpu.log"])

    def test_document_is_there_after_each_row(self):
        self.checkout.programs["gpu_check"]["*sums"] = "cp out/gpu.json before.json; " + PASSES
        checks = self.checkout.programs["gpu_check"]
        self.checkout.programs["gpu_check"] = {"*sums": checks.pop("*sums")} | checks
        self.checkout.run("--only", "checks")
        before = self.checkout.document("before.json")
        self.assertEqual(before["status"], "running")
        self.assertEqual([found["what"] for found in before["results"]][-1], "kernels: pack")

    def test_group_that_dies_loses_its_row(self):
        checks = self.checkout.programs["gpu_check"]
        self.checkout.programs["gpu_check"] = {"*pack": DIES} | checks
        done = self.checkout.run("--only", "checks")
        self.assertEqual(done.returncode, 1)
        rows = self.checkout.rows()
        self.assertEqual(rows["kernels: pack"], ("fail", "ended by signal 11, no seed"))
        self.assertEqual(rows["kernels: sums"][0], "pass")
        self.assertEqual(self.checkout.document()["failed"], 1)
        self.assertFalse(self.checkout.document()["whole"])  # --only

    def test_failed_group_reports_its_findings(self):
        checks = self.checkout.programs["gpu_check"]
        self.checkout.programs["gpu_check"] = {
            "*pack": 'echo "gpu_check: seed 9"; echo "FAILED pack_x: off by 1"; exit 1',
            "*sums": "echo nothing at all"} | checks
        self.checkout.programs["gpu_train_check"] = {
            "*steps": 'echo "note bf16: off by 0.1"; ' + PASSES,
            "--groups": "echo steps"}
        self.checkout.run("--only", "checks")
        rows = self.checkout.rows()
        self.assertEqual(rows["kernels: pack"],
                         ("fail", "exit status 1, FAILED pack_x: off by 1, seed 9"))
        self.assertEqual(rows["kernels: sums"][0], "fail")  # it says nothing of checks
        self.assertTrue(rows["training: steps"][1].endswith("seed 7; bf16: off by 0.1"))
        self.assertEqual(rows["NCCL: a group of one rank"], ("skipped", "CMake found no NCCL"))

    def test_group_that_hangs_loses_its_row(self):
        checks = self.checkout.programs["gpu_check"]
        self.checkout.programs["gpu_check"] = {"*pack": HANGS} | checks
        self.checkout.stage("gpu_check_cap=3; gpu_checks")
        rows = self.checkout.rows()
        self.assertEqual(rows["kernels: pack"], ("fail", "not done after 3 s, no seed"))
        self.assertEqual(rows["kernels: sums"][0], "pass")

    def test_bench_that_hangs_loses_its_share(self):
        self.checkout.programs["gpu_bench"]["*"] = row("one") + begun("two") + HANGS
        self.checkout.stage("gpu_bench_cap=5; gpu_benches")
        rows = self.checkout.rows()
        self.assertEqual(rows["one"][0], "measured")
        self.assertEqual(rows["two"], ("fail", "not done after 5 s"))
        self.assertEqual(rows["bench pack"][0], "fail")

    def test_stages_without_time_are_skipped(self):
        done = self.checkout.stage("gpu_deadline=0; CUDACXX=nvcc; gpu_checks; gpu_benches; "
                                   "gpu_sanitizers; gpu_tests_of_client_and_trainer; "
                                   "gpu_print_table")
        rows = self.checkout.rows()
        self.assertEqual(len(rows), 11, rows)
        for what in ("training: steps", "kernels: sums", "bench pack",
                     "compute-sanitizer memcheck, gpu_check", "client and trainer"):
            self.assertEqual(rows[what][0], "skipped")
            self.assertTrue(rows[what][1].startswith("no time left"), rows[what])
        self.assertEqual(rows["compute-sanitizer racecheck, gpu_check"][1],
                         "no time left for pack sums; 0 groups clean, 0 checks on the GPU, "
                         "none with products in bf16")
        document = self.checkout.document()
        self.assertEqual(document["without_time"], 11)
        self.assertEqual(document["failed"], 0)
        self.assertFalse(document["whole"])
        self.assertIn("11 skipped (11 for lack of time)", done.stdout.splitlines()[-1])

    def test_end_by_the_budget_is_no_failure(self):
        for ending, verdict, why in (("124 10 10 150", "late", ", after 10 s"),
                                     ("137 15 10 150", "late", ", after 15 s"),
                                     ("124 150 150 150", "fail", "not done after 150 s"),
                                     ("137 3 150 150", "fail", "ended by signal 9"),
                                     ("139 3 10 150", "fail", "ended by signal 11"),
                                     ("lost 0 0 150", "fail", "nothing is known of its end"),
                                     ("late 0 0 150", "late", "")):
            with self.subTest(ending):
                done = self.checkout.stage(f"gpu_ending {ending}; echo \"$gpu_verdict:$gpu_why\"")
                self.assertEqual(done.stdout, f"{verdict}:{why}\n", done.stderr)
        self.assertEqual(self.checkout.stage("gpu_ending 1 3 10 150 || echo ended").stdout,
                         "ended\n")

    def test_bench_that_loses_device_resumes_in_new_process(self):
        self.checkout.programs["gpu_bench"]["*"] = row("one") + (
            f'if [[ $* != *"--skip two"* ]]; then {row("two", verdict="fail")} exit 3; fi\n'
        ) + row("three")
        self.checkout.run("--only", "benches")
        rows = self.checkout.rows()
        self.assertEqual([rows[what][0] for what in ("one", "two", "three")],
                         ["measured", "fail", "measured"])
        self.assertNotIn("bench pack", rows)

    def test_bench_that_dies_loses_one_row(self):
        self.checkout.programs["gpu_bench"]["*"] = row("one") + (
            f'if [[ $* != *"--skip two"* ]]; then {begun("two")} {DIES}; fi\n') + row("three")
        done = self.checkout.run("--only", "pack")
        self.assertEqual(done.returncode, 1)
        rows = self.checkout.rows()
        self.assertEqual(rows["two"], ("fail", "ended by signal 11"))
        self.assertEqual(rows["three"][0], "measured")
        self.assertNotIn("kernels: pack", rows)

    def test_program_that_lists_nothing_fails(self):
        self.checkout.programs["gpu_check"]["--groups"] = DIES
        self.checkout.programs["gpu_bench"]["--list"] = ":"
        self.assertEqual(self.checkout.run("--only", "checks,benches").returncode, 1)
        rows = self.checkout.rows()
        self.assertEqual(rows["gpu_check --groups"][0], "fail")
        self.assertEqual(rows["gpu_bench --list"][0], "fail")
        self.assertEqual(rows["training: steps"][0], "pass")

    def test_bench_that_cannot_start_fails(self):
        self.checkout.programs["gpu_bench"]["*"] = "exit 3"
        self.checkout.run("--only", "benches")
        self.assertEqual(self.checkout.rows()["bench pack"],
                         ("fail", "exit status 3; rows that are not here were not measured"))

    def test_sanitizer_fails_with_findings_of_any_group(self):
        tool = self.checkout.tools["compute-sanitizer"]
        self.checkout.tools["compute-sanitizer"] = (
            'if [[ "$*" == *memcheck*gpu_check*sums ]]; then '
            'echo "========= ERROR SUMMARY: 2 errors"; exit 9; fi\n' + tool)
        done = self.checkout.run("--only", "sanitizers")
        self.assertEqual(done.returncode, 1)
        rows = self.checkout.rows()
        self.assertEqual(rows["compute-sanitizer memcheck, gpu_check"],
                         ("fail", "sums: exit status 9, ERROR SUMMARY: 2 errors, no seed; 1 groups "
                                  "clean, 40 checks on the GPU"))
        self.assertEqual(rows["compute-sanitizer racecheck, gpu_check"][0], "pass")

    def test_refused_or_missing_sanitizer_is_skipped(self):
        self.checkout.tools["compute-sanitizer"] = (
            'echo "========= Error: Device not supported. Please use another"; exit 1\n')
        self.assertEqual(self.checkout.run("--only", "sanitizers").returncode, 0)
        self.assertEqual(self.checkout.rows()["compute-sanitizer memcheck, gpu_check"],
                         ("skipped", "this machine refuses the tool"))
        del self.checkout.tools["compute-sanitizer"]
        self.assertEqual(self.checkout.run("--only", "sanitizers").returncode, 0)
        self.assertEqual(self.checkout.rows()["compute-sanitizer"], ("skipped", "not installed"))

    def test_internal_sanitizer_failure_skips_row(self):
        tool = self.checkout.tools["compute-sanitizer"]
        self.checkout.tools["compute-sanitizer"] = (
            'if [[ "$*" == *racecheck*sums ]]; then echo "========= Internal Sanitizer Error: The '
            'Sanitizer failed to handle a hardware exception."; echo "FAILED x"; exit 9; fi\n'
            + tool)
        self.assertEqual(self.checkout.run("--only", "sanitizers").returncode, 0)
        rows = self.checkout.rows()
        self.assertEqual(rows["compute-sanitizer racecheck, gpu_check"],
                         ("skipped", "the tool failed itself in sums; 1 groups clean, 40 checks on "
                                     "the GPU, none with products in bf16"))
        self.assertEqual(rows["compute-sanitizer memcheck, gpu_check"][0], "pass")

    @WITHOUT_GPU
    def test_bf16_products_are_excluded_from_some_sanitizers(self):
        self.checkout.programs["gpu_check"] |= {
            "--groups": "echo pack; echo wide_experts",
            "*--without*bf16*": PASSES.replace("40 checks", "7 checks"), "*": PASSES}
        programs = self.checkout.programs["gpu_check"]
        programs["*"] = programs.pop("*")  # the last of all cases
        done = self.checkout.run()
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = self.checkout.rows()
        for tool in ("memcheck", "synccheck"):
            self.assertEqual(rows[f"compute-sanitizer {tool}, gpu_check"][1],
                             "2 groups clean, 80 checks on the GPU")
        for tool in ("racecheck", "initcheck"):
            self.assertEqual(rows[f"compute-sanitizer {tool}, gpu_check"][1],
                             "2 groups clean, 47 checks on the GPU, none with products in bf16")

    def test_missing_device_is_reported(self):
        self.checkout.programs["gpu_check"] = {
            "--device": 'echo "gpu_check: skipped: no CUDA device (none)"; exit 77',
            "''": 'echo "gpu_check: 9 checks on the CPU, 0 found something"; '
                  'echo "gpu_check: 40 checks skipped: no CUDA device (none)"; exit 77'}
        self.checkout.programs["gpu_train_check"] = {
            "''": 'echo "gpu_train_check: 3 checks skipped: no CUDA device (none)"; exit 77'}
        del self.checkout.tools["nvidia-smi"]
        done = self.checkout.run("--budget", "1")  # which does not end the build
        self.assertEqual(done.returncode, 77, done.stderr)
        document = self.checkout.document()
        self.assertEqual(document["status"], "no device")
        self.assertEqual(document["lacks"], ["CUDA device"])
        self.assertEqual(document["failed"], 0)
        rows = self.checkout.rows()
        self.assertEqual(rows["build"], ("pass", "NCCL 2.28: libnccl.so"))
        for what in ("gpu_check", "gpu_train_check", "benches", "compute-sanitizer"):
            self.assertEqual(rows[what], ("skipped", "no CUDA device (none)"))
        self.assertIn("this machine lacks: CUDA device", done.stdout)
        self.checkout.programs["gpu_check"]["''"] = 'echo "FAILED x_cpu: wrong"; exit 1'
        self.assertEqual(self.checkout.run().returncode, 1)

    def test_failed_device_query_is_a_failure(self):
        self.checkout.programs["gpu_check"]["--device"] = "echo unknown error; exit 1"
        self.assertEqual(self.checkout.run().returncode, 1)
        self.assertEqual(self.checkout.document()["status"], "no usable device")
        self.assertEqual(self.checkout.rows()["device"],
                         ("fail", "gpu_check --device: exit status 1, unknown error"))

    def test_missing_build_tools_are_reported(self):
        for missing, lacks in ((["nvcc"], ["nvcc"]), (["cmake", "ninja", "c++"],
                                                      ["cmake", "ninja", "C++ compiler"])):
            with self.subTest(missing):
                tools = dict(self.checkout.tools)
                for name in missing:
                    del self.checkout.tools[name]
                done = self.checkout.run(CUDACXX=str(self.checkout.root / "tools/nvcc"))
                self.checkout.tools = tools
                self.assertEqual(done.returncode, 78, done.stderr)
                self.assertEqual(self.checkout.document()["status"], "nothing to build with")
                self.assertEqual(self.checkout.document()["lacks"], lacks)
                self.assertIn("this machine lacks: " + " ".join(lacks), done.stdout)

    def test_failed_or_unfinished_build_is_reported(self):
        self.checkout.tools["cmake"] = '[[ $1 != --build ]] || { echo "x.cc: error: no"; exit 2; }'
        done = self.checkout.run()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.checkout.document()["status"], "not built")
        self.assertEqual(self.checkout.rows(), {"build": ("fail", "building: exit status 2")})
        self.assertIn("x.cc: error: no", done.stderr)
        self.assertIn("x.cc: error: no", self.checkout.log())
        self.checkout.tools["cmake"] = HANGS
        self.checkout.stage("gpu_deadline=$((SECONDS + 3)); gpu_build_programs || true")
        self.assertIn("the same command again goes on with it", self.checkout.rows()["build"][1])

    @WITHOUT_GPU
    def test_native_architecture_needs_a_device(self):
        self.checkout.tools["cmake"] = 'echo "$*" >>commands'
        self.checkout.run("--only", "checks")
        commands = self.checkout.root / "commands"
        self.assertIn(" -DCMAKE_CUDA_ARCHITECTURES=native ", commands.read_text())
        commands.unlink()
        del self.checkout.tools["nvidia-smi"]
        self.checkout.run("--only", "checks")
        self.assertIn(" -UCMAKE_CUDA_ARCHITECTURES ", commands.read_text())

    def test_commit_of_sources_without_git_is_unknown(self):
        if shutil.which("git"):
            self.checkout.tools["git"] = "echo /"  # of a repository that they only lie in
        self.checkout.run("--only", "tests")
        self.assertEqual(self.checkout.document()["commit"], "unknown")

    def test_real_programs(self):
        facts = subprocess.run([f"{BIN}/gpu_bench", "--facts"], capture_output=True, text=True,
                               check=False)
        if '"device": "emulated"' not in facts.stdout:
            self.skipTest("built for CUDA")
        # In tiny sizes, and one group of each.
        for name, groups in (("gpu_check", "echo sums"), ("gpu_train_check", "echo nccl")):
            self.checkout.programs[name] = {"--groups": groups,
                                            "*": f'exec {BIN}/{name} "$@" --tiny'}
        self.checkout.programs["gpu_bench"] = {"*": f'exec {BIN}/gpu_bench "$@" --tiny'}
        done = self.checkout.run("--only", "checks,staging", "--pairs", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = self.checkout.rows()
        self.assertEqual(rows["kernels: sums"][0], "pass")
        self.assertEqual(rows["NCCL: a group of one rank"][0], "pass")
        for what in ("device to arena", "arena to device", "plain copy into the arena"):
            self.assertEqual(rows[what][0], "measured")
        staged = self.checkout.document()["results"][-3]
        self.assertEqual((staged["what"], len(staged["runs"])), ("device to arena", 2))
        self.assertEqual(self.checkout.document()["device"], "emulated")

    def test_bad_arguments(self):
        for words in (["--pair", "5"], ["--pairs", "1"], ["--budget", "x"], ["--budget"],
                      ["--only", "nothing"], ["--out"]):
            with self.subTest(words):
                self.assertEqual(self.checkout.run(*words).returncode, 2)


unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
