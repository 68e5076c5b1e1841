# shellcheck shell=bash
# Tests of ./dev gpu that need the libraries of a whole build, too (preset cuda): snapshots and
# restores of device memory, the trainer's model, communicators, and whole runs with a ckptd.

gpu_whole_least=60  # seconds; a build of all that with less would be for nothing

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

# gpu_row_of_test WHAT TEST LOG: a row by the line in which CTest, with --verbose, says how the test
# ended. False if LOG has no such line.
gpu_row_of_test() {
  local what=$1 name=$2 log=$3 said seconds ended last
  local summary="Test +#([0-9]+): $name [ .]*([^ .].*[^ ]) +([0-9]+)[0-9.]* sec"
  [[ $(grep -m 1 -E "$summary" "$log") =~ $summary ]] || return
  ended=${BASH_REMATCH[2]} seconds=${BASH_REMATCH[3]}
  # Tests run side by side: a number says whose a line is.
  said=$(sed -n "/^${BASH_REMATCH[1]}: Test command: /d; s/^${BASH_REMATCH[1]}: //p" "$log")
  case $ended in
    Passed)
      last=$(grep -oE '^\[  PASSED  \] [0-9]+ tests?' <<<"$said") || last=$name
      gpu_row "$what" pass "${last#*\] }" "$seconds"
      ;;
    '***Skipped'*)
      last=$(grep -m 1 -o 'skipped: .*' <<<"$said") || last='skipped: see the log'
      gpu_row "$what" skipped "${last#skipped: }" "$seconds"
      ;;
    *)
      last=$(sed -n 's/^\[  FAILED  \] \([^ ,]*\.[^ ,]*\).*/\1/p' <<<"$said" | sort -u |
        head -n 4 | tr '\n' ' ')
      ended=${ended//'***'/ } ended=${ended# }
      gpu_row "$what" fail "${ended%:}${last:+, }${last% }" "$seconds"
      ;;
  esac
}

# NCCL wants a GPU for each rank, so that only its group of one rank can be run on a single GPU.
gpu_row_of_nccl() {
  if grep -q '^[0-9]*: nccl: 1 ranks' "$1" && grep -q ': cuda_nccl_test .* Passed ' "$1"; then
    gpu_row 'NCCL between ranks' skipped 'there is one GPU; a group of one rank passed'
  else
    gpu_row_of_test 'NCCL between ranks' cuda_nccl_test "$1"
  fi
}

# gpu_run_tests TEST...: of the cuda preset's suite, side by side; a row for each. The budget may
# end them before CTest has said anything of some.
gpu_run_tests() {
  local log=$gpu_out/running/tests.log cap status=0 begun=$SECONDS names name what judge late=no
  cap=$(gpu_left)
  printf -v names '|%s' "$@"
  timeout --kill-after=5 "$cap" ctest --test-dir build/cuda --no-tests=error --verbose \
    -j "${CKPT_GPU_PROCESSES:-$(nproc)}" -R "^(${names#|})\$" >"$log" 2>&1 </dev/null || status=$?
  ! gpu_ending "$status" $((SECONDS - begun)) "$cap" 86400 || late=$gpu_verdict
  for name in "$@"; do
    what=${name//_/ }
    judge=(gpu_row_of_test "$what" "$name" "$log")
    [[ $name != cuda_nccl_test ]] || judge=(gpu_row_of_nccl "$log")
    if "${judge[@]}"; then
      continue
    elif [[ $late == late ]]; then
      gpu_row_late "$what" "$gpu_why"
    else
      gpu_row "$what" fail "ctest: exit status $status, and nothing about $name"
    fi
  done
  gpu_merge 'client and trainer' "$log"
}

gpu_tests_of_client_and_trainer() {
  local log=build/cuda/configure.log what='client and trainer' missing ok=yes
  local tests=(client_cuda_test client_cuda_daemon_test cuda_model_test cuda_comm_test
    cuda_training_test)
  if (($(gpu_left) < gpu_whole_least)); then
    gpu_row_late "$what"
    return
  fi
  say "gpu: building client and trainer; the log is build/cuda/build.log"
  gpu_build cuda ckpt_cuda moetrain ckptd "${tests[@]}" 2>/dev/null || ok=no
  gpu_merge_build cuda
  if [[ $ok == no ]]; then
    # Only a library that is not here is a reason not to test; anything else is a fault.
    if [[ $gpu_why == configuring:* ]] && missing=$(gpu_missing_library "$log"); then
      gpu_row "$what" skipped "of the libraries of a whole build: $missing ($log)"
    elif [[ $gpu_why == *again* || $gpu_why == *'no time left' ]]; then
      gpu_row_late "$what" ": $gpu_why"
    else
      gpu_row "$what" fail "$gpu_why (build/cuda)"
    fi
    return
  fi
  if [[ $(ctest --test-dir build/cuda -N -R '^cuda_nccl_test$') == *'Total Tests: 1'* ]]; then
    tests+=(cuda_nccl_test)
  else
    gpu_row 'NCCL between ranks' skipped 'not found, so nothing of it was built'
  fi
  if (($(gpu_left) < gpu_least)); then
    gpu_row_late "$what" ', though all is built'
  else
    gpu_run_tests "${tests[@]}"
  fi
}
