"""Console scripts: the programs inside the wheel, in place of this process."""

import os
import sys

from . import _library, errors


def _run(name: str) -> None:
    try:
        path = _library.program_path(name)
        os.execv(path, [name, *sys.argv[1:]])
    except (errors.NotFound, OSError) as error:
        sys.exit(f"{name}: {error}")


def ckptd() -> None:
    _run("ckptd")


def ckptctl() -> None:
    _run("ckptctl")
