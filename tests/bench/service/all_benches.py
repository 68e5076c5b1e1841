"""bench/service/all.sh: every bench is run, with the flags that it has; one that fails hides no
other. all_benches.py ALL.SH CKPTBENCH"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

PAIRED = ["save", "restore", "fragments", "stall"]
ALL = PAIRED + ["catalog", "export", "codecs"]
# Writes down how it was called.
STUB = """#!/bin/sh
echo "$@"
test "$1" != "$FAILS"
"""


def run(script, program, *arguments, fails="", folder="."):
    return subprocess.run([script, program, *arguments], capture_output=True, text=True,
                          cwd=folder, env={"PATH": "/usr/bin:/bin", "FAILS": fails}, timeout=60,
                          check=False)


def check_flags(script, stub, folder):
    done = run(script, stub, folder=folder)
    assert done.returncode == 0, done
    scratch = folder / "build/bench"
    assert done.stdout.splitlines() == [f"{bench} --dir {scratch}" for bench in ALL], done
    assert scratch.is_dir()

    done = run(script, stub, "--pairs", "16", "--io", "pwritev", "--json", "--dir", "/x y",
               "--seconds", "9", folder=folder)
    assert done.returncode == 0, done
    assert len(done.stdout.splitlines()) == len(ALL), done
    for bench, line in zip(ALL, done.stdout.splitlines()):
        expected = bench + (" --io pwritev" if bench != "codecs" else "")
        expected += " --pairs 16 --seconds 9" if bench in PAIRED else ""
        assert line == expected + " --json --dir /x y", (line, expected)

    done = run(script, stub, "codecs", "--seconds", "2", "--dir=/x", folder=folder)
    assert done.stdout == "codecs --seconds 2 --dir=/x\n", done
    done = run(script, stub, "save", "--bytes", "1GiB", folder=folder)
    assert done.stdout == f"save --bytes 1GiB --dir {scratch}\n", done


def check_refusals(script, stub, folder):
    for arguments, words in ((["--bytes", "1GiB"], "--bytes: only behind the name of a bench"),
                             (["--pairs"], "--pairs: has no value"),
                             (["kills"], "kills: one of save")):
        done = run(script, stub, *arguments, folder=folder)
        assert done.returncode == 2 and words in done.stderr and not done.stdout, done
    done = run(script, stub, fails="stall", folder=folder)
    assert done.returncode == 1 and "bench: failed: stall\n" in done.stderr, done
    assert len(done.stdout.splitlines()) == len(ALL), done


def check_real(program):
    """The flags are those of the program."""
    for bench in ALL:
        done = subprocess.run([program, bench, "--help"], capture_output=True, text=True,
                              check=True)
        flags = ["--json", "--dir"] + (["--io"] if bench != "codecs" else [])
        flags += ["--pairs ", "--pairs-max", "--seconds"] if bench in PAIRED else []
        for flag in flags:
            assert flag in done.stdout, (bench, flag)


def main(script, program):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        (folder / "bench/service").mkdir(parents=True)
        script = shutil.copy(script, folder / "bench/service")
        stub = folder / "stub"
        stub.write_text(STUB)
        stub.chmod(0o755)
        check_flags(script, str(stub), folder)
        check_refusals(script, str(stub), folder)
    check_real(program)


main(sys.argv[1], sys.argv[2])
