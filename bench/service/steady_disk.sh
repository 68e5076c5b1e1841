#!/usr/bin/env bash
# Runs a command on a disk that is held at one speed, so that a ratio says something of the program
# where others make the disk faster and slower: a limit of cgroups for all that the command and its
# children read and write directly. Needs root.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bench/service/steady_disk.sh BYTES_PER_SECOND DIR COMMAND [ARGUMENTS]

  bench/service/steady_disk.sh 1000000000 /data build/release/bin/ckptbench save --dir /data

Reads and writes of the disk below DIR are each held at BYTES_PER_SECOND: take less than the disk
gives at its slowest. Exit code: the command's; 77 if the kernel or the user may not hold a disk.
TEXT
}
cannot() { printf 'steady_disk: %s\n' "$*" >&2; exit 77; }

if [[ $# -lt 3 || ! $1 =~ ^[1-9][0-9]*$ || ! -d $2 ]]; then
  usage >&2
  exit 2
fi
rate=$1 folder=$2
shift 2

# Limits are of whole disks: that of a partition is the folder above it.
device=$(findmnt --noheadings --output MAJ:MIN --target "$folder" | head -1 | tr -d ' ')
[[ -e /sys/dev/block/$device ]] || cannot "$folder is on no disk"
[[ -e /sys/dev/block/$device/partition ]] && device=$(<"/sys/dev/block/$device/../dev")

if grep -qw io /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
  echo +io 2>/dev/null >/sys/fs/cgroup/cgroup.subtree_control ||
    cannot 'cgroup v2 lets nobody limit disks here'
  group=/sys/fs/cgroup/ckptbench-$$
elif [[ -d /sys/fs/cgroup/blkio ]]; then
  group=/sys/fs/cgroup/blkio/ckptbench-$$
else
  cannot 'no cgroups that limit disks'
fi
mkdir "$group" 2>/dev/null || cannot "$group cannot be made"
# A child of the command that outlives it keeps its group.
trap 'echo $$ >"${group%/*}/cgroup.procs" 2>/dev/null; rmdir "$group" 2>/dev/null || true' EXIT
if [[ -e $group/io.max ]]; then
  echo "$device rbps=$rate wbps=$rate" >"$group/io.max" || cannot "disk $device cannot be held"
else
  for way in read write; do
    echo "$device $rate" >"$group/blkio.throttle.${way}_bps_device" ||
      cannot "disk $device cannot be held"
  done
fi
echo $$ >"$group/cgroup.procs"
"$@"
