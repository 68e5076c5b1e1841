"""./dev python --newest: the tests with PyTorch and the newest packages. A module of tests is a
process: a package that breaks at import breaks its own tests alone. Prints two tables of Markdown;
the exit status is 1 if a test failed."""

import importlib.metadata
import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "pytorch"
PACKAGES = ("torch", "transformers", "accelerate", "lightning", "torchtitan", "megatron-core")
SECONDS_MAX = 1800
PROGRAM = """
import json, sys, unittest
name, told = sys.argv[1:]
passed = []
class Result(unittest.TextTestResult):
    def addSuccess(self, test):
        super().addSuccess(test)
        passed.append(test)
suite = unittest.defaultTestLoader.discover(".", pattern=name + ".py")
whole = unittest.TextTestRunner(resultclass=Result).run(suite)
failed = len(whole.failures) + len(whole.errors) + len(whole.unexpectedSuccesses)
with open(told, "w") as out:
    json.dump({"passed": len(passed), "failed": failed,
               "skipped": [reason for _, reason in whole.skipped]}, out)
"""


def result_of(module, told):
    """{"passed", "failed", "skipped"} of a module; a process that ends early has failed."""
    told.unlink(missing_ok=True)
    try:
        subprocess.run([sys.executable, "-c", PROGRAM, module, str(told)], cwd=FOLDER, check=False,
                       timeout=SECONDS_MAX)
        return json.loads(told.read_text(encoding="utf-8"))
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return {"passed": 0, "failed": 1, "skipped": []}


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main():
    told = pathlib.Path(sys.prefix) / "results.json"
    found = {path.stem: result_of(path.stem, told) for path in sorted(FOLDER.glob("test_*.py"))}
    print("\n| package | version |\n|---|---|")
    print(f"| python | {sys.version.split()[0]} |")
    for package in PACKAGES:
        print(f"| {package} | {version_of(package)} |")
    print("\n| tests | passed | skipped | failed |\n|---|---|---|---|")
    for module, one in found.items():
        print(f"| {module} | {one['passed']} | {len(one['skipped'])} | {one['failed']} |")
    for module, one in found.items():
        for reason in sorted(set(one["skipped"])):
            print(f"{module} skipped: {reason}")
    return 1 if any(one["failed"] for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
