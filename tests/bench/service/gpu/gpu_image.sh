#!/usr/bin/env bash
# usage: gpu_image.sh DIR
#
# Runs ./dev gpu on a machine with nothing but CUDA, CMake, Ninja and g++, and no GPU: it must
# build, name what the machine lacks, exit with 77 and leave its document. Makes a minimal Debian in
# DIR, binds this machine's CUDA toolkit into it, and runs there. A second call reuses DIR and the
# build in it. Needs root, debootstrap and a Debian mirror, and some minutes for a build without
# ccache; therefore it is in no test suite.
set -euo pipefail

fail() {
  printf 'gpu_image: %s\n' "$*" >&2
  exit 1
}

[[ $# -eq 1 ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
# Own mount namespace: its mounts end with this process.
if [[ ${GPU_IMAGE_MOUNTS:-} != own ]]; then
  [[ $EUID -eq 0 ]] || fail 'a chroot needs root'
  GPU_IMAGE_MOUNTS=own exec unshare --mount --propagation private "$0" "$@"
fi
mkdir -p "$1"
image=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."
nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || fail 'there is no nvcc here'
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")

if [[ ! -e $image/.complete ]]; then
  command -v debootstrap >/dev/null || fail 'install debootstrap first'
  suite=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-bookworm}")
  debootstrap --variant=minbase --include=cmake,ninja-build,g++ "$suite" "$image"
  touch "$image/.complete"
fi
mkdir -p "$image/usr/local/cuda" "$image/ckptd" "$image/out"
mount --bind "$toolkit" "$image/usr/local/cuda"
mount -o remount,bind,ro "$image/usr/local/cuda"
mount --rbind /proc "$image/proc"
git ls-files -z --cached --others --exclude-standard |
  tar --create --null --files-from=- | tar --extract --directory="$image/ckptd"
rm -rf "${image:?}/out"

status=0
chroot "$image" /usr/bin/env --ignore-environment PATH=/usr/bin:/bin HOME=/ \
  CKPT_COMMIT="$(git describe --always --dirty)" \
  /ckptd/dev gpu --budget 60 --out /out || status=$?
[[ $status -eq 77 ]] || fail "exit status $status instead of 77"
for line in '"status": "no device"' '"lacks": ["CUDA device"]' '"failed": 0'; do
  grep -qxF "  $line," "$image/out/gpu.json" || fail "gpu.json has no line '$line,'"
done
grep -qF '"what": "build", "verdict": "pass"' "$image/out/gpu.json" || fail 'not built'
printf 'gpu_image: built, exit status 77, and the document says that there is no device\n'
