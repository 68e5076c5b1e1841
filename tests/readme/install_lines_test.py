#!/usr/bin/env python3
"""Runs README's lines for installing ckptd and building a trainer, and the trainers they build.

install_lines_test.py README BUILD_FOLDER CXX_COMPILER [CXX_FLAGS]
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

README, BUILD, COMPILER = sys.argv[1:4]
FLAGS = sys.argv[4] if len(sys.argv) > 4 else ""  # CMake drops an empty argument


def blocks_of(language):
    with open(README, encoding="utf-8") as readme:
        return re.findall(rf"^```{language}\n(.*?)^```$", readme.read(), re.DOTALL | re.MULTILINE)


class InstallLines(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        # The lines name files of a checkout, and the compiler of the system.
        os.makedirs(self.path("checkout", "build"))
        os.symlink(BUILD, self.path("checkout", "build", "release"))
        os.makedirs(self.path("trainer"))
        os.makedirs(self.path("bin"))
        compiler = self.path("bin", "c++")
        self.write(compiler, f'#!/bin/sh\nexec "{COMPILER}" {FLAGS} "$@"\n')
        os.chmod(compiler, 0o755)
        self.environment = {
            **os.environ, "HOME": self.path("home"), "CXX": compiler,
            "PATH": self.path("bin") + os.pathsep + os.environ["PATH"]}
        self.environment.pop("PKG_CONFIG_PATH", None)

    def path(self, *names):
        return os.path.join(self.folder.name, *names)

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def shell(self, lines, folder):
        ran = subprocess.run(["sh", "-eu", "-c", lines], cwd=folder, env=self.environment,
                             capture_output=True, text=True, timeout=240)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout

    def test_installed_example_runs(self):
        install, build = blocks_of("sh")
        (project,) = blocks_of("cmake")
        (program,) = blocks_of("cpp")
        told = self.shell(install, self.path("checkout"))
        self.assertRegex(told.splitlines()[-1], r"^ckptd \d+\.\d+\.\d+")
        self.write(self.path("trainer", "trainer.cc"), program)
        self.write(self.path("trainer", "CMakeLists.txt"), project)
        prefix = self.path("home", "ckptd")
        self.shell(f'PREFIX="{prefix}"\n{build}', self.path("trainer"))
        for trainer in ("build/trainer", "trainer"):
            ran = subprocess.run(
                [sys.executable, os.path.join(os.path.dirname(__file__), "readme_test.py"),
                 os.path.join(prefix, "bin", "ckptd"), self.path("trainer", trainer)],
                capture_output=True, text=True, timeout=240)
            self.assertEqual(ran.returncode, 0, f"{trainer}: {ran.stdout}{ran.stderr}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
