#!/usr/bin/env python3
"""The whole build of ./dev gpu: gpu_libraries.py SOURCES CMAKE

Where it cannot be configured, the row is skipped if a library is missing, with its name, and else
a failure: nothing was shown. Where it is built, each test has a row: how it ended, says CTest."""

import os
import subprocess
import sys
import tempfile
import unittest

SOURCES, CMAKE = sys.argv[1:3]
if not os.path.isabs(CMAKE):
    sys.exit(f"CMAKE is {CMAKE!r}: give an absolute path; a stub named cmake comes first in PATH")

# Runs the part of ./dev gpu in its own folder, with another cmake, and prints its rows.
SCRIPT = r'''
set -euo pipefail
say() { :; }
use_ccache() { :; }
mkdir bin
printf '#!/bin/bash\n%%s\n' '%s' >bin/cmake
chmod +x bin/cmake
export PATH=$PWD/bin:$(dirname "$CMAKE"):$PATH
ln -s "$SOURCES/bench" bench
source bench/service/gpu/evidence.sh
gpu_open out
gpu_on_device=no
gpu_row() { printf '%%s|%%s|%%s\n' "$1" "$2" "$3"; }
gpu_deadline=$((SECONDS + ${TIME:-1000}))
${CALL:-gpu_tests_of_client_and_trainer}
'''

# Messages of versions of pkg-config and CMake that this machine is not likely to have.
RECORDED = {
    # pkgconf
    "Package 'libisal', required by 'virtual:world', not found": """
-- Checking for module 'libisal'
--   Package 'libisal', required by 'virtual:world', not found
CMake Error at /usr/share/cmake-3.25/Modules/FindPkgConfig.cmake:607 (message):
  A required package was not found
Call Stack (most recent call first):
  CMakeLists.txt:6 (pkg_check_modules)
""",
    # pkg-config 0.29
    "No package 'libisal' found": """
-- Checking for module 'libisal'
--   No package 'libisal' found
CMake Error at /usr/share/cmake-3.22/Modules/FindPkgConfig.cmake:603 (message):
  A required package was not found
""",
    # CMake 3.28
    "Package 'openblas' not found": """
-- Checking for module 'openblas'
--   Package 'openblas' not found
CMake Error at /usr/share/cmake-3.28/Modules/FindPkgConfig.cmake:619 (message):
  The following required packages were not found:

   - openblas

""",
    "Package dependency requirement 'liburing >= 2' could not be satisfied.": """
--   Package dependency requirement 'liburing >= 2' could not be satisfied.
Package 'liburing' has version '1.0', required version is '>= 2'
CMake Error at /usr/share/cmake-3.25/Modules/FindPkgConfig.cmake:607 (message):
  A required package was not found
""",
    "Could NOT find ZLIB (missing: ZLIB_LIBRARY)": """
CMake Error at /usr/share/cmake-3.25/Modules/FindPackageHandleStandardArgs.cmake:230 (message):
  Could NOT find ZLIB (missing: ZLIB_LIBRARY)
""",
}

# Faults, though something optional is missing, too, or comes after.
FAULTS = [
    "CMake Error: The source directory does not exist.",
    "",
    """
-- Could NOT find NCCL (missing: NCCL_LIBRARY)
--   Package 'nope', required by 'virtual:world', not found
CMake Error at CMakeLists.txt:5 (message):
  the compiler is too old
""",
    """
CMake Error at CMakeLists.txt:5 (add_library):
  Cannot find source file: there.cc

CMake Error at CMakeLists.txt:9 (find_path):
  Could not find ASIO_INCLUDE_DIR using the following files: asio.hpp
""",
]

# For this machine's CMake, with what a missing library is called in the row.
HERE = {
    "find_program(FLATC no-such-flatc REQUIRED)": "no-such-flatc",
    "find_path(ASIO_INCLUDE_DIR no/such/asio.hpp REQUIRED)": "no/such/asio.hpp",
    "find_library(GLOO_LIBRARY no-such-gloo REQUIRED)": "no-such-gloo",
    "find_package(NoSuchDB REQUIRED)": "NoSuchDB",
    "find_package(PkgConfig REQUIRED)\npkg_check_modules(ISAL REQUIRED libnosuch)": "libnosuch",
}


# Bash text of a test program: its output, and its exit code.
PASSES = "echo '[  PASSED  ] 12 tests.'"
NO_DEVICE = "echo 'x.cc:7: skipped: no CUDA device (none)'; exit 77"
FAILS = ("echo '[  FAILED  ] All/X.Sums/Nccl, where GetParam() = 4 (5 ms)'; "
         "echo '[  FAILED  ] 1 test, listed below:'; echo '[  FAILED  ] All/X.Sums/Nccl, where'; "
         "exit 1")
TESTS = ("client_cuda_test", "client_cuda_daemon_test", "cuda_model_test", "cuda_comm_test",
         "cuda_training_test", "cuda_nccl_test")


class Rows(unittest.TestCase):
    """Rows of a whole build: what -> (verdict, reason). `files` are those of build/cuda."""

    def rows(self, cmake, files=None, **environment):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "build/cuda"))
            for name, text in (files or {}).items():
                with open(os.path.join(folder, "build/cuda", name), "w", encoding="utf-8") as file:
                    file.write(text)
            environment = os.environ | environment | {"SOURCES": SOURCES, "CMAKE": CMAKE}
            done = subprocess.run(["bash", "-c", SCRIPT % cmake], cwd=folder, env=environment,
                                  capture_output=True, text=True, check=True)
            with open(os.path.join(folder, "out/gpu.log"), encoding="utf-8") as file:
                self.log = file.read()
        rows = (line.split("|", 2) for line in done.stdout.splitlines())
        return {what: (verdict, reason) for what, verdict, reason in rows}


class Tests(Rows):
    def rows_of(self, environment=None, **others):
        """Rows of tests that pass, but for others: name -> bash text; None: there is no such."""
        tests = {name: PASSES for name in TESTS} | others
        files = {"CTestTestfile.cmake": "".join(
            f'add_test({name} bash -c [=[{text}]=])\n'
            f'set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 60)\n'
            for name, text in tests.items() if text is not None)}
        return self.rows("", files, **environment or {})

    def test_each_test_has_a_row(self):
        rows = self.rows_of(cuda_model_test=FAILS, cuda_comm_test=NO_DEVICE,
                           cuda_training_test="kill -SEGV $$")
        self.assertEqual(len(rows), 6, rows)
        self.assertEqual(rows["client cuda test"], ("pass", "12 tests"))
        self.assertEqual(rows["client cuda daemon test"], ("pass", "12 tests"))
        self.assertEqual(rows["cuda model test"], ("fail", "Failed, All/X.Sums/Nccl"))
        self.assertEqual(rows["cuda comm test"], ("skipped", "no CUDA device (none)"))
        self.assertEqual(rows["cuda training test"][0], "fail")
        self.assertIn("Exception", rows["cuda training test"][1])
        self.assertEqual(rows["NCCL between ranks"], ("pass", "12 tests"))
        self.assertIn("listed below", self.log)

    def test_group_of_one_rank_is_skipped(self):
        one = "echo 'nccl: 1 ranks, each with a GPU of its own'; "
        self.assertEqual(self.rows_of(cuda_nccl_test=one + PASSES)["NCCL between ranks"],
                         ("skipped", "there is one GPU; a group of one rank passed"))
        self.assertEqual(self.rows_of(cuda_nccl_test=one + FAILS)["NCCL between ranks"][0], "fail")
        self.assertEqual(self.rows_of(cuda_nccl_test=None)["NCCL between ranks"][0], "skipped")

    def test_a_test_that_was_not_built_fails(self):
        self.assertEqual(self.rows_of(cuda_comm_test=None)["cuda comm test"],
                         ("fail", "ctest: exit status 0, and nothing about cuda_comm_test"))

    def test_the_budget_ends_tests_without_a_failure(self):
        rows = self.rows_of({"CALL": "gpu_run_tests cuda_comm_test", "TIME": "4"},
                           cuda_comm_test="exec tail -f /dev/null")
        verdict, reason = rows["cuda comm test"]
        self.assertEqual(verdict, "skipped")
        self.assertIn("no time left, after", reason)


class Libraries(Rows):
    def row(self, cmake, **environment):
        rows = self.rows(cmake, **environment)
        self.assertEqual(list(rows), ["client and trainer"])
        return rows["client and trainer"]

    def recorded(self, log):
        return self.row('printf "%s" "$LOG"; exit 1', LOG=log)

    def configured(self, project):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
                file.write(f"cmake_minimum_required(VERSION 3.25)\nproject(x NONE)\n{project}\n")
            return self.row('"$CMAKE" -S "$PROJECT" -B "$PROJECT/build"', PROJECT=folder)

    def test_recorded_libraries(self):
        for missing, log in RECORDED.items():
            with self.subTest(missing):
                verdict, reason = self.recorded(log)
                self.assertEqual(verdict, "skipped")
                self.assertIn(f"of the libraries of a whole build: {missing} (", reason)

    def test_recorded_faults(self):
        for log in FAULTS:
            with self.subTest(log):
                self.assertEqual(self.recorded(log)[0], "fail")

    def test_missing_here(self):
        for project, missing in HERE.items():
            with self.subTest(project):
                verdict, reason = self.configured(project)
                self.assertEqual(verdict, "skipped")
                self.assertIn(missing, reason)

    def test_fault_here(self):
        verdict, reason = self.configured("find_package(NoSuchDB)\nmessage(FATAL_ERROR other)")
        self.assertEqual(verdict, "fail")
        self.assertIn("configuring: exit status", reason)
        self.assertIn("CMake Error", self.log)  # the build folder stays where it is


unittest.main(argv=sys.argv[:1])
