"""A checkout for tests of ./dev gpu in which every program is a few lines of bash."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

PASSES = 'echo "a_check: seed 7"; echo "gpu_check: 40 checks on the GPU, 0 found something"'

# Preamble of a stage of ./dev gpu: sets the state that earlier stages leave.
STAGE = """
set -euo pipefail
say() { printf '%s\\n' "$*" >&2; }
use_ccache() { :; }
source bench/service/gpu/evidence.sh
gpu_bin=build/gpu/bin gpu_pairs=2 gpu_bench_seed=1 gpu_only= gpu_on_device=yes
gpu_deadline=100000
gpu_open out
gpu_open_pipe
"""


def row(what, kind="other", verdict="measured"):
    """Bash lines of a gpu_bench that measures one row."""
    record = "\\t".join(["row", kind, verdict, what, f"{what} {verdict}",
                         f'{{"what": "{what}", "verdict": "{verdict}"}}'])
    return (f'if [[ " $* " != *"--skip {what}"* ]]; then echo "{what} ..." >&2; '
            f"printf '{record}\\n'; fi\n")


def begun(what):
    return f'echo "{what} ..." >&2\n'


class Checkout:
    """`programs`: name in build/gpu/bin -> {bash pattern of the arguments: bash text to run}. A
    program fails if no pattern matches."""

    def __init__(self, test, sources):
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("dev", "bench"):
            (self.root / name).symlink_to(pathlib.Path(sources) / name)
        self.programs = {
            "gpu_check": {"--device": 'echo "gpu_check: Some GPU"',
                          "--groups": "echo pack; echo sums", "*": PASSES},
            "gpu_train_check": {"--groups": "echo steps; echo nccl", "*": PASSES},
            "gpu_bench": {"--list": "echo pack", "--facts": "echo '\"device\": \"Some GPU\"'",
                          "*": row("packing", "bound", "pass")},
        }
        self.tools = {
            "nvcc": 'echo "release 13.0, V13"',
            "ninja": ":",
            "c++": ":",
            "nvidia-smi": 'echo "GPU 0"',
            "cmake": '[[ " $* " != *" --preset cuda "* ]] || { '
                     'echo "CMake Error at x:1 (find_package):"; '
                     'echo "  Could not find zstd"; exit 1; }\necho "-- NCCL 2.28: libnccl.so"',
            "compute-sanitizer": 'while [[ $1 == --* ]]; do tool=$2; '
                                 '[[ $1 == --tool ]] && last=$2; shift 2; done; "$@"; '
                                 'if [[ $last == racecheck ]]; then echo "========= RACECHECK '
                                 'SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"; else '
                                 'echo "========= ERROR SUMMARY: 0 errors"; fi',
        }

    def _write(self, folder, name, text):
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, *arguments, **environment):
        """Runs ./dev gpu with these arguments."""
        return self._bash([self.root / "dev", "gpu", "--out", "out", *arguments], environment)

    def stage(self, text):
        """Runs a part of ./dev gpu, given as bash; the document is written row by row."""
        return self._bash(["-c", STAGE + text], {})

    def _bash(self, words, environment):
        for name, cases in self.programs.items():
            text = "".join(f"  {pattern}) {body} ;;\n" for pattern, body in cases.items())
            self._write("build/gpu/bin", name, f'case "$*" in\n{text}  *) exit 99 ;;\nesac')
        shutil.rmtree(self.root / "tools", ignore_errors=True)
        for name, text in self.tools.items():
            self._write("tools", name, text)
        # No build tools of this machine.
        for name in ("awk basename bash cat cp ctest date dirname env git grep head mkdir mkfifo "
                     "mktemp mv nproc rm sed tail tee timeout tr").split():
            found = shutil.which(name)
            if found and not (self.root / "tools" / name).exists():
                (self.root / "tools" / name).symlink_to(found)
        environment = {"PATH": str(self.root / "tools"), "HOME": str(self.root),
                       "CKPT_GPU_PROCESSES": "1", "CUDACXX": "nvcc"} | environment
        return subprocess.run([shutil.which("bash"), *words], cwd=self.root, env=environment,
                              text=True, capture_output=True, check=False,
                              stdin=subprocess.DEVNULL)

    def document(self, name="out/gpu.json"):
        return json.loads((self.root / name).read_text(encoding="utf-8"))

    def rows(self):
        return {found["what"]: (found["verdict"], found.get("reason", ""))
                for found in self.document()["results"]}

    def log(self):
        return (self.root / "out/gpu.log").read_text(encoding="utf-8")
