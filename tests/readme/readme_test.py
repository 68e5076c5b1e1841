#!/usr/bin/env python3
"""Runs README's example against a real daemon: what one run of it saved, the next one restores."""

import os
import subprocess
import sys
import tempfile
import unittest

CKPTD, EXAMPLE = sys.argv[1], sys.argv[2]


class ReadmeExample(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.socket = os.path.join(self.folder.name, "s")
        self.daemon = subprocess.Popen(
            [CKPTD, "--data", os.path.join(self.folder.name, "data"), "--listen",
             "unix:" + self.socket, "--arena", "1GiB"], stderr=subprocess.PIPE, text=True)
        for line in self.daemon.stderr:
            if line.strip() == "ready":
                return
        self.fail(f"ckptd ended with {self.daemon.wait()} before it was ready")

    def tearDown(self):
        self.daemon.terminate()
        self.daemon.communicate(timeout=60)
        self.folder.cleanup()

    def example(self):
        environment = {**os.environ, "CKPTD_SOCKET": self.socket, "CKPTD_RUN": "readme"}
        return subprocess.run([EXAMPLE], env=environment, capture_output=True, text=True,
                              timeout=120)

    def test_each_run_resumes_where_last_stopped(self):
        for step in (1, 2, 3):
            ran = self.example()
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))
            self.assertEqual(ran.stdout, f"step {step} durable, weight {step}\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
