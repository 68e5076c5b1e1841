"""Machine, commit and date of a result."""

import datetime
import os
import pathlib
import platform
import subprocess


def _cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return "unknown"


def _file_system(folder):
    """Type of the mount that holds the folder."""
    real, found = os.path.realpath(folder), ("", "unknown")
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, *_ = line.split()
        if os.path.commonpath([real, place]) == place and len(place) >= len(found[0]):
            found = (place, kind)
    return found[1]


def describe(folder):
    return {"cpu": _cpu(), "cores": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"),
            "kernel": platform.release(), "file_system": _file_system(folder),
            "load_average_before": os.getloadavg()[0]}


def commit(root):
    done = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12",
                           "--exclude", "*"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "not recorded"


def today():
    return datetime.date.today().isoformat()
