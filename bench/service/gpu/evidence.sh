# shellcheck shell=bash
# ./dev gpu: collects all evidence of the GPU path in one call of limited length. Sourced by dev,
# whose functions it uses.
for part in rows run build stages whole; do
  # shellcheck source=/dev/null
  source "bench/service/gpu/evidence_$part.sh"
done

gpu_usage() {
  cat <<'TEXT'
usage: ./dev gpu [--budget SECONDS] [--out DIR] [--pairs N] [--only WORDS] [--seed N]

  --budget SECONDS  time for everything, the build included (default 540)
  --out DIR         folder of the result (default build/gpu-evidence): gpu.json, written anew with
                    each row, and gpu.log
  --pairs N         how often value and limit of a bench take turns (default 11)
  --only WORDS      some of these, separated by commas: checks, benches, sanitizers, tests, or the
                    name of a bench: pack, staging, kernels, training (default: all)
  --seed N          random numbers of the benches (default: fresh)

Builds the preset gpu with CUDA, CMake, Ninja and a C++ compiler, for the GPU that is here. Then
runs checks, benches, compute-sanitizer and, where the libraries are there, the tests of the whole
build, in this order, each in the time that is left. Installs nothing.

A part without time is a row "skipped: no time left". A build that is not done in time is a failure;
the same command again goes on with it. On a machine without a GPU the budget does not end the
build: it is all that can be shown there.

Environment: CKPT_COMMIT=ID      the commit, where there is no git
             CKPT_WERROR=ON      warnings are errors
             CKPT_GPU_PROCESSES  how many checks run side by side (default: one a core)

Exit code: 0; 1 if a row says fail; 2 for bad usage; 77 if all is well, but there is no GPU;
78 if there is nothing to build with. gpu.json has the reason in "status" and "lacks".
`./dev gpu-results DIR` takes the result, and a table of it, into bench/results.
TEXT
}

gpu_bad_usage() {
  say "gpu: $*"
  gpu_usage >&2
  exit 2
}

gpu_take_arguments() {
  gpu_budget=540
  gpu_folder=build/gpu-evidence
  gpu_pairs=11
  gpu_only=
  gpu_bench_seed=$((RANDOM << 15 | RANDOM))
  local word
  while (($# > 0)); do
    case $1 in
      --budget | --pairs | --seed)
        [[ ${2:-} =~ ^[0-9]{1,9}$ ]] || gpu_bad_usage "$1 ${2:-}: not a number"
        ;;&
      --budget) gpu_budget=$((10#$2)) ;;
      --pairs) gpu_pairs=$((10#$2)) ;;
      --seed) gpu_bench_seed=$((10#$2)) ;;
      --out)
        [[ -n ${2:-} ]] || gpu_bad_usage "$1: which folder?"
        gpu_folder=$2
        [[ $2 == /* ]] || gpu_folder=$DEV_CALLED_FROM/$2
        ;;
      --only)
        for word in ${2//,/ }; do
          [[ $word =~ ^(checks|benches|sanitizers|tests|pack|staging|kernels|training)$ ]] ||
            gpu_bad_usage "$1 $word: not known"
        done
        gpu_only=${2:-}
        ;;
      *) gpu_bad_usage "$1: not understood" ;;
    esac
    shift $(($# > 1 ? 2 : 1))
  done
  ((gpu_pairs >= 2 && gpu_pairs <= 1000)) || gpu_bad_usage "--pairs $gpu_pairs: 2 to 1000"
}

gpu_wants() { [[ -z $gpu_only || ,$gpu_only, == *,$1,* ]]; }

# Commit of these sources; a repository that merely contains their folder does not count.
gpu_commit() {
  local top
  if [[ -n ${CKPT_COMMIT:-} ]]; then
    printf '%s' "$CKPT_COMMIT"
  elif top=$(git rev-parse --show-toplevel 2>/dev/null) && [[ $top -ef . ]]; then
    git describe --always --dirty
  else
    printf 'unknown'
  fi
}

# gpu_finish STATUS EXIT_CODE: completes the document, prints the table last, and exits.
gpu_finish() {
  local code=$2
  gpu_status=$1
  rm -rf "$gpu_out/running"
  gpu_write
  gpu_print_table | tee -a "$gpu_out/gpu.log"
  say "gpu: $gpu_status after $SECONDS s; see $gpu_out/gpu.json and gpu.log"
  (($(gpu_count fail) == 0)) || code=1
  exit "$code"
}

# Evidence without a device: the programs run, and their checks of the CPU's kernels.
gpu_without_device() {
  gpu_whole=false
  gpu_lacks+=('CUDA device')
  local program log
  for program in gpu_check gpu_train_check; do
    local status=0 begun=$SECONDS
    log=$gpu_out/running/$program.log
    "$gpu_bin/$program" >"$log" 2>&1 </dev/null || status=$?
    gpu_row_of_checks "$program" "$log" "$status" $((SECONDS - begun))
    gpu_merge "$program" "$log"
  done
  gpu_row benches skipped "$1"
  gpu_row compute-sanitizer skipped "$1"
  gpu_finish 'no device' 77
}

# Ends ./dev gpu if there is no usable device. A hanging driver is stopped by timeouts.
gpu_find_device() {
  local status=0 device member
  device=$(timeout --kill-after=5 60 "$gpu_bin/gpu_check" --device 2>&1) || status=$?
  case $status in
    0) ;;
    77) gpu_without_device "${device#*skipped: }" ;;
    *)
      gpu_whole=false
      gpu_row device fail "gpu_check --device: exit status $status${device:+, $device}"
      gpu_finish 'no usable device' 1
      ;;
  esac
  while read -r member; do gpu_members+=("$member"); done \
    < <(timeout --kill-after=5 60 "$gpu_bin/gpu_bench" --facts)
  gpu_member driver "$(timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader \
    2>/dev/null | head -n 1)"
}

gpu_evidence() {
  case " $* " in *' --help '* | *' -h '*) gpu_usage && return ;; esac
  gpu_take_arguments "$@"
  gpu_bin=build/gpu/bin
  gpu_deadline=$((gpu_budget - 5)) # leaves time for the last rows
  gpu_on_device=no
  ! gpu_seems_there || gpu_on_device=yes
  gpu_open "$gpu_folder" || die "$gpu_folder: cannot be written"
  gpu_open_pipe || die 'a pipe cannot be made'
  gpu_member commit "$(gpu_commit)"
  gpu_member date "$(date -u +%Y-%m-%dT%H:%MZ)"
  gpu_members+=("\"budget_seconds\": $gpu_budget" "\"pairs\": $gpu_pairs"
    "\"seed\": $gpu_bench_seed")
  [[ -z $gpu_only && $gpu_pairs -ge 11 ]] || gpu_whole=false
  gpu_find_tools
  if ((${#gpu_lacks[@]} > 0)); then
    gpu_whole=false
    gpu_row build skipped "there is no ${gpu_lacks[*]} here"
    gpu_finish 'nothing to build with' 78
  fi
  gpu_build_programs || { gpu_whole=false && gpu_finish 'not built' 1; }
  gpu_find_device
  ! gpu_wants checks || gpu_checks
  gpu_benches
  ! gpu_wants sanitizers || gpu_sanitizers
  ! gpu_wants tests || gpu_tests_of_client_and_trainer
  gpu_finish complete 0
}
