#!/usr/bin/env python3
"""Rows of ./dev gpu: gpu_evidence.py SOURCES CMAKE

Where the whole build cannot be configured, the row is skipped if a library is missing, with its
name, and else a failure: nothing was shown. A sanitizer must say itself that it found nothing."""

import os
import subprocess
import sys
import tempfile
import unittest

SOURCES, CMAKE = sys.argv[1:3]

# Runs the part of evidence.sh in a folder of its own, with another cmake, and prints its row.
SCRIPT = r'''
set -euo pipefail
say() { :; }
cmake() { %s; }
preset_flags=()
source "$SOURCES/bench/gpu/evidence.sh"
gpu_tests_of_client_and_trainer
printf '%%s\n' "${gpu_rows[@]:2}"
'''

# A program of checks, with what it prints and how it ends.
CHECKS = r'''
set -euo pipefail
say() { :; }
mkdir -p build/gpu
source "$SOURCES/bench/gpu/evidence.sh"
program() { printf "%s" "$LOG"; return "$STATUS"; }
export -f program
gpu_checks "$WHAT" log 20 bash -c program 2>/dev/null
printf '%s\n' "${gpu_rows[@]:2}"
'''
FOUND_NOTHING = "a_check: seed 7\ngpu_check: 40 checks on the GPU, 0 found something\n"
MEMCHECK = "compute-sanitizer memcheck, gpu_check"
RACECHECK = "compute-sanitizer racecheck, gpu_check"
NO_ERRORS = "========= ERROR SUMMARY: 0 errors\n"
NO_RACES = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"

# What other versions say than those that are likely to be here.
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


class Evidence(unittest.TestCase):
    def checked(self, what, log, status=0):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"SOURCES": SOURCES, "WHAT": what, "LOG": log,
                                        "STATUS": str(status)}
            done = subprocess.run(["bash", "-c", CHECKS], cwd=folder, env=environment,
                                  capture_output=True, text=True, check=True)
        verdict, reason = done.stdout.splitlines()
        return verdict, reason

    def test_checks(self):
        self.assertEqual(self.checked("kernels", FOUND_NOTHING),
                         ("pass", "40 checks on the GPU, 0 found something, seed 7"))
        verdict, reason = self.checked("kernels", "note bf16: off by 0.1\n" + FOUND_NOTHING)
        self.assertEqual(verdict, "pass")
        self.assertTrue(reason.endswith("seed 7; bf16: off by 0.1"), reason)
        self.assertEqual(self.checked("kernels", FOUND_NOTHING, 1)[0], "fail")
        self.assertEqual(self.checked("kernels", "a_check: seed 7\n")[0], "fail")

    def test_sanitizer_that_found_nothing(self):
        for what, said in (MEMCHECK, NO_ERRORS), (RACECHECK, NO_RACES):
            self.assertEqual(self.checked(what, FOUND_NOTHING + said)[0], "pass", said)

    def test_sanitizer_that_did_not_say_so(self):
        races = "========= RACECHECK SUMMARY: {} hazards displayed ({} errors, {} warnings)\n"
        for what, said in (
                (MEMCHECK, ""),  # it was not there, or was ended
                (MEMCHECK, "========= ERROR SUMMARY: 2 errors\n"),
                (MEMCHECK, "========= ERROR SUMMARY: 10 errors\n"),
                (MEMCHECK, "ERROR SUMMARY: 0 errors\n"),  # somebody else
                (MEMCHECK, NO_ERRORS + "========= ERROR SUMMARY: 1 error\n"),
                (RACECHECK, ""),
                (RACECHECK, NO_ERRORS),
                (RACECHECK, races.format(1, 0, 1)),
                (RACECHECK, races.format(1, 1, 0)),
        ):
            verdict, reason = self.checked(what, FOUND_NOTHING + said)
            self.assertEqual(verdict, "fail", said)
            self.assertIn("did not say that it found nothing", reason)
        verdict, reason = self.checked(RACECHECK, FOUND_NOTHING + races.format(3, 3, 0), 9)
        self.assertEqual(verdict, "fail")
        self.assertIn("RACECHECK SUMMARY: 3 hazards", reason)

    def row(self, cmake, **environment):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | environment | {"SOURCES": SOURCES, "CMAKE": CMAKE}
            done = subprocess.run(["bash", "-c", SCRIPT % cmake], cwd=folder, env=environment,
                                  capture_output=True, text=True, check=True)
        verdict, reason = done.stdout.splitlines()
        return verdict, reason

    def recorded(self, log):
        return self.row('printf "%s" "$LOG"; return 1', LOG=log)

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
        self.assertIn("cannot be configured", reason)


unittest.main(argv=sys.argv[:1])
