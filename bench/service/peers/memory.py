"""Memory and CPU time of a process group, from /proc."""

import os

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name (proc(5)): state is 0.
_PARENT_GROUP, _USER, _SYSTEM = 2, 11, 12


def _stat(pid):
    """Fields behind the name, which may contain blanks; None: the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def members(group):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(name)
            if fields and int(fields[_PARENT_GROUP]) == group:
                found.append(int(name))
    return found


def cpu_seconds(pids):
    fields = [fields for fields in map(_stat, pids) if fields]
    return sum(int(one[_USER]) + int(one[_SYSTEM]) for one in fields) / _TICKS


def pss(pids):
    """Proportional set size in bytes: a page that n processes map counts 1/n for each."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:  # it has ended
            continue
    return total * 1024
