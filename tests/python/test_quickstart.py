"""Runs the example of docs/python.md twice: it prints what the page shows."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from support import ROOT

PAGE = ROOT / "docs" / "python.md"


class Quickstart(unittest.TestCase):
    def test_output_matches_page(self):
        text = PAGE.read_text(encoding="utf-8")
        (program,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        shown = re.findall(r"^```text\n(.*?)^```$", text[text.index(program):],
                           re.DOTALL | re.MULTILINE)
        path = [] if "CKPTD_INSTALLED" in os.environ else [str(ROOT / "client" / "python")]
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_RUNTIME_DIR": folder,
                           "PYTHONPATH": os.pathsep.join(path)}
            for output in shown[:2]:
                ran = subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment,
                                     capture_output=True, text=True, timeout=100, check=False)
                self.assertEqual((ran.stdout, ran.stderr), (output, ""))


if __name__ == "__main__":
    unittest.main()
