#!/usr/bin/env python3
"""The whole build of ./dev gpu: gpu_libraries.py SOURCES CMAKE

Where it cannot be configured, the row is skipped if a library is missing, with its name, and else a
failure: nothing was shown."""

import os
import subprocess
import sys
import tempfile
import unittest

SOURCES, CMAKE = sys.argv[1:3]
if not os.path.isabs(CMAKE):
    sys.exit(f"CMAKE is {CMAKE!r}: give an absolute path; a stub named cmake comes first in PATH")

# Runs the part of ./dev gpu in its own folder, with another cmake, and prints its row.
SCRIPT = r'''
set -euo pipefail
say() { :; }
use_ccache() { :; }
mkdir bin
printf '#!/bin/bash\n%%s\n' '%s' >bin/cmake
chmod +x bin/cmake
export PATH=$PWD/bin:$PATH
ln -s "$SOURCES/bench" bench
source bench/service/gpu/evidence.sh
gpu_open out
gpu_deadline=1000
gpu_on_device=no
gpu_row() { printf '%%s\n' "$2" "$3"; }
gpu_tests_of_client_and_trainer
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


class Libraries(unittest.TestCase):
    def row(self, cmake, **environment):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | environment | {"SOURCES": SOURCES, "CMAKE": CMAKE}
            done = subprocess.run(["bash", "-c", SCRIPT % cmake], cwd=folder, env=environment,
                                  capture_output=True, text=True, check=True)
        verdict, reason = done.stdout.splitlines()
        return verdict, reason

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


unittest.main(argv=sys.argv[:1])
