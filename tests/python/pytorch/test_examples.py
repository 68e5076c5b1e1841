"""The examples, and the quickstart of docs/pytorch.md, print what they promise."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

import pytorch_support as support
from pytorch_support import StoreTest
from support import ROOT

EXAMPLES = ROOT / "client" / "python" / "examples"
PAGE = ROOT / "docs" / "pytorch.md"


def run(program, size, folder=None, **environment):
    """The output of rank 0 of a job."""
    jobs = support.processes(program, size, folder, **environment)
    said = []
    try:
        for job in jobs:
            said.append(job.communicate(timeout=support.TIMEOUT))
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    for job, (_, wrong) in zip(jobs, said):
        if job.returncode:
            raise AssertionError(wrong)
    return said[0][0]


class Examples(StoreTest):
    def test_a_resumed_moe_repeats_the_uninterrupted_losses(self):
        program = [str(EXAMPLES / "moe_saver.py")]
        first = run(program, 2, STEPS="2").splitlines()
        second = run(program, 2, STEPS="2").splitlines()
        whole = (EXAMPLES / "moe_saver.py").read_text(encoding="utf-8").replace(
            '"moe-saver"', '"moe-saver-whole"')
        with tempfile.NamedTemporaryFile("w", suffix=".py") as other:
            other.write(whole)
            other.flush()
            uninterrupted = run([other.name], 2, STEPS="4").splitlines()
        self.assertEqual(first + second, uninterrupted)
        self.assertEqual(len(uninterrupted), 4)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_two_lines_of_the_trainer(self):
        def steps(said):
            return [line for line in said.splitlines() if line.startswith("step")]
        with tempfile.TemporaryDirectory() as folder:
            program = [str(EXAMPLES / "hf_trainer.py")]
            first = steps(run(program, 1, folder, STOP="1"))
            second = steps(run(program, 1, folder))
        self.assertEqual([line.split(":")[0] for line in first], ["step 1"])
        self.assertEqual([line.split(":")[0] for line in second],
                         [f"step {step}" for step in range(2, 7)])

    def repeats_the_uninterrupted_losses(self, name, run_name):
        """Two jobs of two steps, and one with a run of its own that is not ended in between."""
        said = [run([str(EXAMPLES / name)], 2) for _ in range(2)]
        whole = (EXAMPLES / name).read_text(encoding="utf-8").replace(
            f'"{run_name}"', f'"{run_name}-whole"').replace(
                " + 3)", " + 5)").replace("first + 2)", "first + 4)")
        with tempfile.NamedTemporaryFile("w", suffix=".py") as other:
            other.write(whole)
            other.flush()
            uninterrupted = run([other.name], 2)
        self.assertEqual("".join(said), uninterrupted)
        self.assertEqual(len(uninterrupted.splitlines()), 4)

    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "accelerate is not installed")
    def test_a_loop_with_accelerate(self):
        self.repeats_the_uninterrupted_losses("accelerate_loop.py", "accelerate")

    @unittest.skipUnless(importlib.util.find_spec("torchtitan"), "torchtitan is not installed")
    def test_torchtitans_experts(self):
        self.repeats_the_uninterrupted_losses("torchtitan_moe.py", "torchtitan")

    @unittest.skipUnless(importlib.util.find_spec("megatron"), "megatron-core is not installed")
    def test_experts_of_megatron_core(self):
        self.repeats_the_uninterrupted_losses("megatron_experts.py", "megatron-experts")

    def test_two_lines_of_dcp(self):
        self.assertEqual(run([str(EXAMPLES / "dcp_lines.py")], 2), "epoch 7 is back\n")


class Page(unittest.TestCase):
    def test_quickstart_output_matches_page(self):
        text = PAGE.read_text(encoding="utf-8")
        program = re.search(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE).group(1)
        shown = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        path = [] if "CKPTD_INSTALLED" in os.environ else [str(ROOT / "client" / "python")]
        with tempfile.TemporaryDirectory() as folder:
            for output in shown[:2]:
                ran = subprocess.run(
                    [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True,
                    timeout=support.TIMEOUT, check=False,
                    env={**os.environ, "XDG_RUNTIME_DIR": folder,
                         "PYTHONPATH": os.pathsep.join(path)})
                self.assertEqual(ran.stdout, output, ran.stderr)


if __name__ == "__main__":
    unittest.main()
