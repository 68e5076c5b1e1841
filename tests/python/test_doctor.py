"""python -m ckptd doctor, and what importing the package does and does not."""

import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import sys
import unittest

from support import ROOT, DaemonTest, ckptd
from ckptd import _library, doctor


def python(*arguments, **environment):
    path = [] if "CKPTD_INSTALLED" in os.environ else [str(ROOT / "client" / "python")]
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60,
                          check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(path),
                                            **environment})


class Doctor(DaemonTest):
    def about(self, topic, socket):
        return [(f.level, f.sentence, f.remedy) for f in doctor.examine(socket) if f.topic == topic]

    def test_healthy_setup_has_no_failures(self):
        ran = python("-m", "ckptd", "doctor", "--json", CKPTD_SOCKET="unix:" + self.daemon.socket)
        findings = json.loads(ran.stdout)
        failures = [finding for finding in findings if finding["level"] == "failure"]
        self.assertEqual((ran.returncode, failures, ran.stderr), (0, [], ""))
        self.assertEqual({finding["topic"] for finding in findings} & {
            "package", "libckpt", "ckptd", "ckptctl", "io_uring", "locked memory", "shared memory",
            "/dev/shm", "local", "socket", "daemon", "arena"},
            {"package", "libckpt", "ckptd", "ckptctl", "io_uring", "locked memory", "shared memory",
             "/dev/shm", "local", "socket", "daemon", "arena"})

    def test_failures_name_remedies_and_set_exit_code(self):
        ran = python("-m", "ckptd", "doctor", "--socket", self.folder + "/none")
        self.assertEqual(ran.returncode, 1, ran.stderr)
        self.assertIn(f"failure  socket: socket {self.folder}/none: No such file", ran.stdout)
        self.assertIn("start ckptd with --listen", ran.stdout)

    def test_a_socket_whose_daemon_has_died(self):
        path = self.folder + "/dead"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
        self.assertEqual(self.about("socket", path), [
            ("failure", f"socket {path}: nobody listens", "start ckptd")])

    def test_a_file_that_is_no_socket(self):
        (found,) = self.about("socket", __file__)
        self.assertEqual(found[:2], ("failure", f"{__file__} is no socket"))

    def test_programs_and_library_that_are_missing(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        ran = python("-m", "ckptd", "doctor", CKPTD_LIB_DIR=empty, CKPTD_BIN_DIR=empty)
        self.assertEqual(ran.returncode, 1)
        self.assertIn(f"failure  libckpt: library {empty}/libckpt.so.0", ran.stdout)
        self.assertIn("failure  ckptd: program ckptd cannot be run", ran.stdout)

    def test_a_program_of_another_version(self):
        for name in ("ckptd", "ckptctl"):
            path = pathlib.Path(self.folder, name)
            path.write_text(f"#!/bin/sh\necho {name} 9.9.9\n", encoding="utf-8")
            path.chmod(0o755)
        ran = python("-m", "ckptd", "doctor", CKPTD_BIN_DIR=self.folder)
        self.assertIn(f"warning  ckptd: {self.folder}/ckptd is 9.9.9, this package", ran.stdout)


class Package(unittest.TestCase):
    def test_import_has_no_side_effects(self):
        ran = python("-S", "-c", """
import os, sys, threading
before = dict(os.environ), os.listdir("/proc/self/fd"), set(sys.modules)
import ckptd
assert (dict(os.environ), os.listdir("/proc/self/fd")) == before[:2]
assert threading.active_count() == 1
with open("/proc/self/maps") as maps:
    assert "libckpt" not in maps.read()
new = {name.split(".")[0] for name in set(sys.modules) - before[2]} - {"ckptd"}
foreign = new - set(sys.stdlib_module_names)
assert not foreign, foreign
slow = new & {"subprocess", "asyncio", "inspect", "dataclasses", "tempfile", "logging", "argparse"}
assert not slow, slow
""", PYTHONPATH=str(pathlib.Path(ckptd.__file__).parent.parent))
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    def test_all_names_exist_and_package_is_typed(self):
        for name in ckptd.__all__:
            self.assertTrue(hasattr(ckptd, name), name)
        self.assertTrue(pathlib.Path(ckptd.__file__).with_name("py.typed").is_file())

    def test_all_parts_have_one_version(self):
        for name in ("ckptd", "ckptctl"):
            ran = subprocess.run([_library.program_path(name), "--version"], capture_output=True,
                                 text=True, timeout=60, check=True)
            self.assertEqual(ran.stdout.strip(), f"{name} {ckptd.__version__}")

    def test_console_scripts_become_the_program(self):
        self.assertIsNotNone(importlib.util.find_spec("ckptd._programs"))
        for name in ("ckptd", "ckptctl"):
            ran = python("-c", f"import ckptd._programs as p; p.{name}()", "--version")
            self.assertEqual(ran.stdout.strip(), f"{name} {ckptd.__version__}", ran.stderr)


if __name__ == "__main__":
    unittest.main()
