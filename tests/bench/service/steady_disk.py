"""bench/service/steady_disk.sh: limits the command, passes its exit code on, leaves nothing
behind."""
import glob
import subprocess
import sys
import tempfile

SKIPPED = 77
RATE = 123000000
# Prints the limits that the command itself sees: those of its group, for both versions of cgroups.
SEE = """
group=$(grep -o '/ckptbench-[0-9]*$' /proc/self/cgroup | head -1)
cat /sys/fs/cgroup/blkio"$group"/blkio.throttle.*_bps_device \
    /sys/fs/cgroup"$group"/io.max 2>/dev/null
exit 5
"""


def groups():
    return set(glob.glob("/sys/fs/cgroup/**/ckptbench-*", recursive=True))


def run(*arguments):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60)


def main(script):
    assert run(script, "fast", "/", "true").returncode == 2
    assert run(script, str(RATE), "/").returncode == 2
    before = groups()
    with tempfile.TemporaryDirectory() as folder:
        ended = run(script, str(RATE), folder, "bash", "-c", SEE)
    assert groups() == before, groups() - before
    if ended.returncode == SKIPPED:
        print("skipped:", ended.stderr.strip())
        return SKIPPED
    assert ended.returncode == 5, ended
    assert ended.stdout.count(str(RATE)) == 2, ended.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
