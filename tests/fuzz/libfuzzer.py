#!/usr/bin/env python3
"""Runs one parser under libFuzzer for some seconds, from the samples that the tests have.

  libfuzzer.py --program build/fuzz/tests/parsers_libfuzzer --parser NAME [--seconds N] [--seed S]

Seconds and seed may come from CKPT_FUZZ_SECONDS and CKPT_FUZZ_SEED. The corpus of each parser
stays beside the program, and the next run goes on from it. A finding is kept there, too, and
the line that repeats it is the last thing printed. Exit codes: 0 nothing found, 1 found something.

The canary has a planted bug: the exit code is 0 if the bug is found, and 1 otherwise.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

INPUT_BYTES_MAX = 64 << 10
INPUT_SECONDS_MAX = 10
MEMORY_MIB_MAX = 2048
PLANTED = "the canary read out of bounds"  # canary.cc


def fuzz(options, folder, environment, output=None):
    """libFuzzer's exit code; 0: nothing found. Findings lie in folder / 'findings'."""
    corpus, findings = folder / "corpus", folder / "findings"
    for each in (corpus, findings):
        each.mkdir(parents=True, exist_ok=True)
    command = [options.program, str(corpus), f"-max_total_time={options.seconds}",
               f"-seed={options.seed % (1 << 31) or 1}", f"-max_len={INPUT_BYTES_MAX}",
               f"-timeout={INPUT_SECONDS_MAX}", f"-rss_limit_mb={MEMORY_MIB_MAX}",
               "-malloc_limit_mb=256", "-verbosity=0", "-print_final_stats=1",
               f"-artifact_prefix={findings}/"]
    environment = {**environment, "CKPT_FUZZ_SEEDS": str(corpus)}
    # Twice its time and a minute: whatever a parser does, this ends.
    try:
        return subprocess.run(command, env=environment, check=False, stdout=output, stderr=output,
                              timeout=2 * options.seconds + 60).returncode
    except subprocess.TimeoutExpired:
        print("it did not end by itself", flush=True)
        return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--parser", required=True)
    parser.add_argument("--seconds", type=int, default=os.environ.get("CKPT_FUZZ_SECONDS", "1"))
    parser.add_argument("--seed", type=int, default=os.environ.get("CKPT_FUZZ_SEED", "1"))
    options = parser.parse_args()
    program = pathlib.Path(options.program).resolve()
    options.program = str(program)
    environment = {**os.environ, "CKPT_FUZZ_PARSER": options.parser}
    if options.parser == "canary":
        with tempfile.TemporaryDirectory() as folder:
            with open(pathlib.Path(folder) / "output", "w+", errors="replace") as output:
                code = fuzz(options, pathlib.Path(folder), environment, output)
                output.seek(0)
                said = output.read()
            kept = list((pathlib.Path(folder) / "findings").iterdir())
        found = code != 0 and kept and PLANTED in said
        print("the planted bug was found" if found else said + "THE CANARY WAS NOT FOUND")
        return 0 if found else 1
    folder = program.parent / "libfuzzer" / options.parser
    known = set((folder / "findings").glob("*"))
    code = fuzz(options, folder, environment)
    for finding in sorted(set((folder / "findings").glob("*")) - known):
        print(f"repeat with: CKPT_FUZZ_PARSER={options.parser} {program} {finding}")
    return 0 if code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
