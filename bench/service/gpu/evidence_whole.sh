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

# Runs one test of the cuda preset's suite and adds a row for it.
gpu_test() {
  local what=$1 name=$2 log=$gpu_out/running/$2.log status=0 begun=$SECONDS cap last
  if (($(gpu_left) < gpu_least)); then
    gpu_row_late "$what"
    return
  fi
  cap=$(gpu_left)
  timeout --kill-after=5 "$cap" ctest --test-dir build/cuda --output-on-failure --no-tests=error \
    --verbose -R "^$name\$" >"$log" 2>&1 </dev/null || status=$?
  if gpu_ending "$status" $((SECONDS - begun)) "$cap" 86400; then
    gpu_row_of_ending "$what" "$log"
  elif [[ $status -ne 0 ]]; then
    gpu_row "$what" fail "$name" $((SECONDS - begun))
  elif grep -q '\*\*\*Skipped' "$log"; then
    last=$(grep -m 1 -o 'skipped: .*' "$log") || last='skipped: see the log'
    gpu_row "$what" skipped "${last#skipped: }"
  else
    last=$(grep -m 1 -o 'nccl: .*' "$log") || last=$name
    gpu_row "$what" pass "${last#nccl: }" $((SECONDS - begun))
  fi
  gpu_merge "$what" "$log"
}

gpu_tests_of_client_and_trainer() {
  local log=build/cuda/configure.log what='client and trainer' missing test
  local tests=(client_cuda_test client_cuda_daemon_test cuda_model_test cuda_comm_test
    cuda_training_test)
  if (($(gpu_left) < gpu_whole_least)); then
    gpu_row_late "$what"
    return
  fi
  if ! gpu_build cuda ckpt_cuda moetrain ckptd "${tests[@]}" 2>/dev/null; then
    # Only a library that is not here is a reason not to test; anything else is a fault.
    if [[ $gpu_why == configuring:* ]] && missing=$(gpu_missing_library "$log"); then
      gpu_row "$what" skipped "of the libraries of a whole build: $missing ($log)"
    elif [[ $gpu_why == *again* ]]; then
      gpu_row_late "$what" ": $gpu_why"
    else
      gpu_row "$what" fail "$gpu_why (build/cuda)"
    fi
    return
  fi
  for test in "${tests[@]}"; do gpu_test "${test//_/ }" "$test"; done
  if [[ $(ctest --test-dir build/cuda -N -R '^cuda_nccl_test$') == *'Total Tests: 1'* ]]; then
    gpu_test 'NCCL between ranks' cuda_nccl_test
  else
    gpu_row 'NCCL between ranks' skipped 'not found, so nothing of it was built'
  fi
}
