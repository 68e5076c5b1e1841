# shellcheck shell=bash
# ./dev gpu: every check and bench of the GPU path, and their rows for the table of gpu_bench. Read
# by dev, whose functions it uses.

gpu_usage() {
  cat <<'TEXT'
usage: ./dev gpu [--quick] [--pairs N] [--only NAME] [--seed N]

  --quick      without compute-sanitizer, which takes up to 20 minutes for each of three runs
  --pairs N    how often value and limit take turns; 11 unless said
  --only NAME  one bench: pack, staging, kernels or training; the checks run all the same
  --seed N     random numbers of the benches

Builds with CUDA, CMake, Ninja and a C++ compiler, checks, measures, and prints a table last
(bench/README.md). CKPT_WERROR=ON in the environment: warnings are errors.
TEXT
}

# Lines of the table that gpu_bench prints last: what, verdict, reason. Each is said when it is
# known, too: what comes after may not come to an end.
gpu_rows=()
gpu_row() {
  gpu_rows+=(--row "$1" "$2" "$3")
  say "gpu: $1: $2: $3"
}

# Whether a tool's log ends with its own sentence that it found nothing. That nothing failed is not
# enough: it may have looked at nothing, or have warned. What is no tool has nothing to say.
gpu_tool_is_clean() {
  local clean='ERROR SUMMARY: 0 errors'
  case $1 in
    *'compute-sanitizer racecheck'*)
      clean='RACECHECK SUMMARY: 0 hazards displayed \(0 errors, 0 warnings\)' ;;
    *compute-sanitizer*) ;;
    *) return 0 ;;
  esac
  [[ $(grep -E '^=+ *[A-Z]+ SUMMARY: ' "$2") =~ ^=+\ *$clean$ ]]
}

# gpu_checks WHAT LOG SECONDS COMMAND...: a program of checks, or one under a tool, becomes a row.
gpu_checks() {
  local what=$1 log=build/gpu/$2.log seconds=$3 status=0
  shift 3
  timeout --kill-after=10 "$seconds" "$@" >"$log" 2>&1 || status=$?
  cat "$log" >&2
  local last seed notes why
  last=$(grep -E '^gpu_[a-z_]+: [0-9]' "$log" | tail -n 1) || last=
  seed=$(grep -o 'seed [0-9]*' "$log" | head -n 1) || seed='no seed'
  if grep -q '^=*  *\(Error: \)\?Device not supported' "$log"; then
    gpu_row "$what" skipped 'this machine refuses the tool'
  elif [[ $status -eq 0 && -n $last ]] && ! gpu_tool_is_clean "$what" "$log"; then
    gpu_row "$what" fail "the tool did not say that it found nothing, $seed; see $log"
  elif [[ $status -eq 0 && -n $last ]]; then
    notes=$(sed -n 's/^note \([a-z0-9_]*: .*\)/; \1/p' "$log" | tr -d '\n')
    gpu_row "$what" pass "${last#gpu_*: }, $seed$notes"
  elif [[ $status -eq 77 ]]; then
    gpu_row "$what" skipped "${last#*skipped: }"
  else
    why="exit status $status"
    [[ $status -eq 124 || $status -eq 137 ]] && why="not done after $seconds s"
    last=$(grep -m 1 -oE '(ERROR|RACECHECK) SUMMARY: .*|^FAILED .*' "$log") && why="$why, $last"
    gpu_row "$what" fail "$why, $seed; see $log"
  fi
}

# Errors that calls return are no findings: the programs look at each, and some are asked for. Races
# are looked for in our own kernels, whose mangled names have the namespace; those of cuBLAS have
# their own ways.
gpu_sanitizer() {
  local tool=$1 sanitizer=$2 program=$3 what="compute-sanitizer $1, $3" options=()
  [[ $tool == memcheck ]] && options+=(--report-api-errors no)
  [[ $tool == racecheck ]] && options+=(--kernel-name kns=ckpt)
  if [[ ! -x $sanitizer ]]; then
    gpu_row "$what" skipped 'the tool is not installed'
  else
    gpu_checks "$what" "$tool-$program" 1200 \
      "$sanitizer" --tool "$tool" "${options[@]}" --error-exitcode 9 "build/gpu/bin/$program" --tiny
  fi
}

gpu_sanitizers() {
  local nvcc=$1 quick=$2 sanitizer device=0
  build/gpu/bin/gpu_check --device >build/gpu/device.log 2>&1 || device=$?
  if [[ $quick == yes ]]; then
    gpu_row compute-sanitizer skipped 'left out by --quick'
  elif [[ $device -eq 77 ]]; then
    gpu_row compute-sanitizer skipped "$(sed 's/.*skipped: //' build/gpu/device.log)"
  else
    sanitizer=$(command -v compute-sanitizer) || sanitizer=$(dirname "$nvcc")/compute-sanitizer
    gpu_sanitizer memcheck "$sanitizer" gpu_check
    gpu_sanitizer racecheck "$sanitizer" gpu_check
    gpu_sanitizer synccheck "$sanitizer" gpu_check
    gpu_sanitizer initcheck "$sanitizer" gpu_check
    gpu_sanitizer memcheck "$sanitizer" gpu_train_check
  fi
}

# One entry of the cuda preset's suite becomes a row.
gpu_test() {
  local what=$1 name=$2 log=build/cuda/$2.log last
  if ! run_ctest cuda --verbose -R "^$name\$" >"$log" 2>&1; then
    cat "$log" >&2
    gpu_row "$what" fail "$name; see $log"
  elif grep -q '\*\*\*Skipped' "$log"; then
    last=$(grep -m 1 -o 'skipped: .*' "$log") || last="skipped: see $log"
    gpu_row "$what" skipped "${last#skipped: }"
  else
    last=$(grep -m 1 -o 'nccl: .*' "$log") || last=$name
    gpu_row "$what" pass "${last#nccl: }"
  fi
}

# Which library CMake stopped for, by its log; fails where it stopped for anything else. Only the
# first error counts: what is optional is reported missing before it, too.
gpu_missing_library() {
  local log=$1 error
  error=$(awk 'error && /^(CMake |Call Stack|-- )/ { exit } error; /^CMake Error/ { error = 1 }' \
    "$log")
  if grep -qE 'required packages? (was|were) not found' <<<"$error"; then
    # pkg-config's own sentence, which comes before; its versions have different ones.
    grep -oE "No package '.*|Package .*(not found|could not be satisfied).*" "$log" |
      tail -n 1
  else
    grep -m 1 -oE 'Could (NOT|not) find .*' <<<"$error"
  fi
}

# What has a CUDA part and needs our other libraries, too: snapshots and restores of device memory,
# the trainer's model, communicators, and whole runs of moetrain with a ckptd.
gpu_tests_of_client_and_trainer() {
  local log=build/cuda/configure.log what='client and trainer'
  local tests=(client_cuda_test client_cuda_daemon_test cuda_model_test cuda_comm_test
    cuda_training_test)
  mkdir -p build/cuda
  if ! cmake --preset cuda "${preset_flags[@]}" >"$log" 2>&1; then
    # Only a library that is not here is a reason not to test; anything else is a fault.
    local missing
    if missing=$(gpu_missing_library "$log"); then
      gpu_row "$what" skipped "of the libraries of a whole build: $missing ($log)"
    else
      gpu_row "$what" fail "cannot be configured ($log)"
    fi
    return
  fi
  if ! (build_preset cuda --target ckpt_cuda moetrain ckptd "${tests[@]}"); then
    gpu_row "$what" fail 'does not build (build/cuda/build.log)'
    return
  fi
  local test
  for test in "${tests[@]}"; do gpu_test "${test//_/ }" "$test"; done
  if [[ $(ctest --test-dir build/cuda -N -R '^cuda_nccl_test$') == *'Total Tests: 1'* ]]; then
    gpu_test NCCL cuda_nccl_test
  else
    gpu_row NCCL skipped 'not found, so nothing of it was built'
  fi
}

# Needs nvcc, CMake, Ninja and a C++ compiler, and installs nothing.
gpu_evidence() {
  local quick=no arguments=() word
  for word in "$@"; do
    case $word in
      --help | -h) gpu_usage; return ;;
      --quick) quick=yes; arguments+=(--part) ;;
      *) arguments+=("$word") ;;
    esac
  done
  need_nvcc || { say "dev: no nvcc here; nothing of CUDA was built"; return; }
  preset_flags=(-DCKPT_WERROR="${CKPT_WERROR:-OFF}") # other compilers warn of other things
  build_preset gpu
  # Before hours of checks, not behind them.
  build/gpu/bin/gpu_bench "${arguments[@]}" --check-arguments || exit 2
  local commit driver
  commit=$(git describe --always --dirty 2>/dev/null) || commit=unknown
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null) ||
    driver=unknown
  gpu_checks 'kernels: parity, sentinels, same bits' gpu_check 1200 build/gpu/bin/gpu_check
  gpu_checks 'training: parity, ranks, resume, bf16' gpu_train_check 1200 \
    build/gpu/bin/gpu_train_check
  gpu_sanitizers "$CUDACXX" "$quick"
  gpu_tests_of_client_and_trainer
  mkdir -p bench/results
  # Last, and its table last of all.
  local status=0
  timeout --kill-after=10 2400 build/gpu/bin/gpu_bench --results bench/results \
    --fact "commit=$commit" --fact "driver=${driver%%$'\n'*}" \
    --fact "nvcc=$("$CUDACXX" --version | grep -o 'release [0-9.]*')" \
    "${gpu_rows[@]}" "${arguments[@]}" || status=$?
  case $status in
    0 | 77) ;; # 77: nothing is wrong, and there was no GPU
    1) return 1 ;;
    *)
      say "dev: gpu_bench has ended with $status before its table; what was known before:"
      printf '%.0s%s: %s: %s\n' "${gpu_rows[@]}"
      return 1
      ;;
  esac
}
