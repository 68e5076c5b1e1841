# shellcheck shell=bash
# The build of ./dev gpu, and the tools it needs: nvcc, CMake, Ninja and a C++ compiler.

# Adds each missing tool to gpu_lacks.
gpu_find_tools() {
  local nvcc compiler
  if nvcc=$(find_nvcc); then
    export CUDACXX=$nvcc
    gpu_member nvcc "$("$nvcc" --version | grep -o 'release [0-9.]*')"
  else
    gpu_lacks+=(nvcc)
  fi
  command -v cmake >/dev/null || gpu_lacks+=(cmake)
  command -v ninja >/dev/null || gpu_lacks+=(ninja)
  for compiler in "${CXX:-c++}" g++ clang++; do
    command -v "$compiler" >/dev/null && return
  done
  gpu_lacks+=('C++ compiler')
}

# True if this machine seems to have a GPU; runs before any program of ours can ask CUDA.
gpu_seems_there() {
  timeout 20 nvidia-smi -L >/dev/null 2>&1 || compgen -G '/dev/nvidia[0-9]*' >/dev/null ||
    [[ -e /dev/dxg ]]
}

# gpu_step WHAT LOG COMMAND...: runs a command of the build. Sets gpu_why if it fails.
gpu_step() {
  local what=$1 log=$2 cap=86400 status=0
  shift 2
  # Without a GPU the build is all the evidence there is, so that it gets no time limit.
  [[ $gpu_on_device == no ]] || cap=$(gpu_left)
  gpu_why="$what: no time left"
  ((cap > 0)) || return 1
  timeout --kill-after=5 "$cap" "$@" >"$log" 2>&1 </dev/null || status=$?
  [[ $status -ne 0 ]] || return 0
  gpu_why="$what: exit status $status"
  [[ $status -ne 124 && $status -ne 137 ]] ||
    gpu_why="$what: not done after $cap s; the same command again goes on with it"
  grep -nE 'FAILED|error|Error' "$log" | head -n 40 >&2 || true
  say "--- end of $log"
  tail -n 40 "$log" >&2
  return 1
}

# gpu_build PRESET [TARGET...]: configures and builds. Sets gpu_why on failure.
gpu_build() {
  local preset=$1 launcher=() targets=()
  local for_device=(-UCMAKE_CUDA_ARCHITECTURES -UCMAKE_CUDA_FLAGS)
  shift
  (($# == 0)) || targets=(--target "$@")
  use_ccache
  # -lineinfo lets compute-sanitizer name source lines; it costs no speed.
  [[ $gpu_on_device == no ]] ||
    for_device=(-DCMAKE_CUDA_ARCHITECTURES=native -DCMAKE_CUDA_FLAGS=-lineinfo)
  mkdir -p "build/$preset"
  rm -f "build/$preset/configure.log" "build/$preset/build.log" # of an earlier call
  gpu_step configuring "build/$preset/configure.log" cmake --preset "$preset" "${launcher[@]}" \
    "${for_device[@]}" -DCKPT_WERROR="${CKPT_WERROR:-OFF}" || return
  gpu_step building "build/$preset/build.log" cmake --build --preset "$preset" -j "$(nproc)" \
    "${targets[@]}"
}

# gpu_merge_build PRESET: its logs become parts of the merged one, which alone leaves the machine.
gpu_merge_build() {
  local log
  for log in configure build; do
    [[ ! -e build/$1/$log.log ]] || cp "build/$1/$log.log" "$gpu_out/running/$log.log"
    gpu_merge "$log, $1" "$gpu_out/running/$log.log"
  done
}

# Builds the preset gpu and adds a row for it. Fails if the programs were not built.
gpu_build_programs() {
  local begun=$SECONDS ok=yes nccl
  say "gpu: building; the log is build/gpu/build.log"
  gpu_build gpu || ok=no
  gpu_merge_build gpu
  if [[ $ok == no ]]; then
    gpu_row build fail "$gpu_why" $((SECONDS - begun))
    return 1
  fi
  nccl=$(grep -m 1 -o 'NCCL.*' build/gpu/configure.log) || nccl='NCCL: unknown'
  gpu_row build pass "$nccl" $((SECONDS - begun))
}
