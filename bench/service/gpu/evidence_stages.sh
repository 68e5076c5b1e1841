# shellcheck shell=bash
# What ./dev gpu runs on a device: groups of checks, benches, and checks under compute-sanitizer.

gpu_check_cap=150   # seconds of one group of checks
gpu_bench_cap=180   # of one bench, in all of its processes
gpu_tool_cap=300    # of one group under a tool

# --- checks ----------------------------------------------------------------------------------

# gpu_name_parts PROGRAM OPTION: sets gpu_names to the parts that it names. None is a failure, as
# nothing would be shown by it.
gpu_name_parts() {
  mapfile -t gpu_names < <("$gpu_bin/$1" "$2")
  ((${#gpu_names[@]} > 0)) || gpu_row "$1 $2" fail 'it names nothing that could be run'
}

gpu_check_name() {
  case $1 in
    gpu_check.*) printf 'kernels: %s' "${1#*.}" ;;
    gpu_train_check.nccl) printf 'NCCL: a group of one rank' ;;
    *) printf 'training: %s' "${1#*.}" ;;
  esac
}

gpu_start_check() { gpu_start "$1" "$gpu_check_cap" "$gpu_bin/${1%%.*}" --group "${1#*.}"; }

gpu_end_check() {
  local id=$1 status=$2 seconds=$3 log=$gpu_out/running/$1.log what
  what=$(gpu_check_name "$id")
  : >>"$log"
  if gpu_ending "$status" "$seconds" "$4" "$gpu_check_cap"; then
    gpu_row_of_ending "$what" "$log"
  else
    gpu_row_of_checks "$what" "$log" "$status" "$seconds"
  fi
  gpu_merge "$what" "$log"
}

# Writes the row of a process whose end gpu_ending has judged.
gpu_row_of_ending() {
  if [[ $gpu_verdict == late ]]; then
    gpu_row_late "$1" "$gpu_why"
  else
    gpu_row "$1" fail "$gpu_why, $(gpu_seed "$2")"
  fi
}

gpu_seed() { grep -m 1 -o 'seed [0-9]*' "$1" || printf 'no seed'; }

# The last thing that a program of checks says of itself: "40 checks on the GPU, 0 found something".
gpu_last_words() { sed -n 's/^gpu_[a-z_]*: \([0-9].*\)/\1/p' "$1" | tail -n 1; }

# gpu_row_of_checks WHAT LOG STATUS SECONDS: of a program of checks that ended by itself.
gpu_row_of_checks() {
  local what=$1 log=$2 status=$3 seconds=$4 last notes
  last=$(gpu_last_words "$log")
  if [[ $status -eq 0 && -n $last ]]; then
    notes=$(sed -n 's/^note \([a-z0-9_]*: .*\)/; \1/p' "$log" | tr -d '\n')
    gpu_row "$what" pass "$last, $(gpu_seed "$log")$notes" "$seconds"
  elif [[ $status -eq 77 ]]; then
    gpu_row "$what" skipped "${last#*skipped: }" "$seconds"
  else
    last=$(grep -m 1 '^FAILED ' "$log") || last=${last:-no last words}
    gpu_row "$what" fail "exit status $status, $last, $(gpu_seed "$log")" "$seconds"
  fi
}

gpu_checks() {
  local ids=() program
  for program in gpu_train_check gpu_check; do # the training first: its groups take longest
    gpu_name_parts "$program" --groups
    ids+=("${gpu_names[@]/#/$program.}")
  done
  [[ " ${ids[*]} " == *' gpu_train_check.nccl '* ]] ||
    gpu_row 'NCCL: a group of one rank' skipped 'CMake found no NCCL'
  gpu_pool gpu_start_check gpu_end_check "${ids[@]}"
}

# --- benches ---------------------------------------------------------------------------------

# gpu_bench NAME: its rows, from as many processes as it takes. One that dies, or loses the device,
# loses the row that it was measuring; the next one measures the rows behind it.
gpu_bench() {
  local name=$1 own=$gpu_bench_cap begun cap count measuring status
  local -A rows=()
  while :; do
    if (($(gpu_left) < gpu_least)); then
      gpu_row_late "bench $name" " for more than ${#rows[@]} rows"
      return
    fi
    begun=$SECONDS
    count=${#rows[@]}
    cap=$(gpu_capped "$own")
    gpu_read_rows "$name" "$cap"
    case $status in 0 | 1) return ;; esac
    gpu_ending "$status" $((SECONDS - begun)) "$cap" "$own" || gpu_why="exit status $status"
    if [[ $gpu_verdict == late ]]; then
      gpu_row_late "bench $name" "$gpu_why, with ${#rows[@]} rows"
      return
    fi
    gpu_whole=false
    if [[ -n $measuring && -z ${rows[$measuring]:-} ]]; then
      rows[$measuring]=yes
      gpu_row "$measuring" fail "$gpu_why"
    fi
    own=$((own - (SECONDS - begun)))
    if ((${#rows[@]} == count || own < gpu_least)); then
      gpu_row "bench $name" fail "$gpu_why; rows that are not here were not measured"
      return
    fi
  done
}

# One process of a bench, without the caller's `rows`, to which it adds. Sets its `status`, and
# `measuring`: the row that it began last.
gpu_read_rows() {
  local name=$1 cap=$2 log=$gpu_out/running/bench-$1.log pipe word kind verdict what line json
  local skip=()
  for what in "${!rows[@]}"; do skip+=(--skip "$what"); done
  exec {pipe}< <(
    ended=0
    timeout --kill-after=5 "$cap" "$gpu_bin/gpu_bench" --only "$name" --pairs "$gpu_pairs" \
      --seed "$gpu_bench_seed" --rows "${skip[@]}" 2>"$log" </dev/null || ended=$?
    printf 'end\t%s\n' "$ended"
  )
  status=lost
  while IFS=$'\t' read -r -u "$pipe" word kind verdict what line json; do
    case $word in
      row)
        rows[$what]=yes
        gpu_add "$kind" "$verdict" "$line" "$json"
        ;;
      end) status=$kind ;;
    esac
  done
  exec {pipe}<&-
  measuring=$(sed -n 's/ \.\.\.$//p' "$log" | tail -n 1)
  gpu_merge "bench $name" "$log"
}

gpu_benches() {
  local name
  gpu_name_parts gpu_bench --list
  for name in "${gpu_names[@]}"; do
    if gpu_wants benches || gpu_wants "$name"; then gpu_bench "$name"; fi
  done
}

# --- compute-sanitizer -----------------------------------------------------------------------

# Each TOOL.PROGRAM becomes one row. These count its groups that are not done and that passed, and
# keep the words about all others.
declare -A gpu_set_left=() gpu_set_passed=() gpu_set_checks=() gpu_set_late=() gpu_set_found=()
declare -A gpu_set_refused=() gpu_set_broken=()

# True if a tool's log ends with the tool's own statement that it found nothing. The absence of an
# error is not enough: the tool may have checked nothing, or may have warned.
gpu_tool_is_clean() {
  local clean='ERROR SUMMARY: 0 errors'
  [[ $1 != racecheck ]] || clean='RACECHECK SUMMARY: 0 hazards displayed \(0 errors, 0 warnings\)'
  [[ $(grep -E '^=+ *[A-Z]+ SUMMARY: ' "$2") =~ ^=+\ *$clean$ ]]
}

# Errors that calls return are no findings: the programs look at each, and some are asked for. Races
# are looked for in our own kernels, whose mangled names have the namespace; those of cuBLAS have
# their own ways. Each tool takes one of the ports that all share, which are 10 unless said; and
# programs that start side by side take their time to connect.
gpu_start_tool() {
  local tool program group options=(--max-connections 200 --launch-timeout 100)
  IFS=. read -r tool program group <<<"$1"
  [[ $tool == memcheck ]] && options+=(--report-api-errors no)
  [[ $tool == racecheck ]] && options+=(--kernel-name kns=ckpt)
  local checks=(--tiny --group "$group")
  gpu_is_beyond_tool "$tool" "$group" && checks+=(--without bf16)
  gpu_start "$1" "$gpu_tool_cap" "$gpu_sanitizer" --tool "$tool" "${options[@]}" \
    --error-exitcode 9 "$gpu_bin/$program" "${checks[@]}"
}

# cuBLAS's products in bf16 are beyond two tools, seen on an H200 with CUDA 13.0: under racecheck
# they end in an illegal access, though memcheck finds none and the values are right; and initcheck
# takes what they have stored for uninitialised. Our kernels of these groups are looked at in fp32.
gpu_is_beyond_tool() {
  [[ $1 == racecheck || $1 == initcheck ]] && [[ $2 =~ (linear|attention|experts)$ ]]
}

gpu_end_tool() {
  local id=$1 status=$2 tool program group set log=$gpu_out/running/$1.log words
  IFS=. read -r tool program group <<<"$id"
  set=$tool.$program
  : >>"$log"
  words=$(gpu_last_words "$log")
  if grep -q '^=*  *\(Error: \)\?Device not supported' "$log"; then
    gpu_set_refused[$set]='this machine refuses the tool'
  elif grep -q '^=* *Internal Sanitizer Error' "$log"; then
    gpu_set_broken[$set]+=" $group" # whatever the result of its checks
  elif gpu_ending "$status" "$3" "$4" "$gpu_tool_cap"; then
    if [[ $gpu_verdict == late ]]; then
      gpu_set_late[$set]+=" $group"
    else
      gpu_set_found[$set]+="$group: $gpu_why; "
    fi
  elif [[ $status -eq 0 && -n $words ]] && gpu_tool_is_clean "$tool" "$log"; then
    gpu_set_passed[$set]=$((${gpu_set_passed[$set]:-0} + 1))
    gpu_set_checks[$set]=$((${gpu_set_checks[$set]:-0} + ${words%% *}))
  elif [[ $status -eq 0 ]]; then
    gpu_set_found[$set]+="$group: the tool did not say that it found nothing; "
  else
    words=$(grep -m 1 -oE '(ERROR|RACECHECK) SUMMARY: .*|^FAILED .*' "$log") || words='no summary'
    gpu_set_found[$set]+="$group: exit status $status, $words, $(gpu_seed "$log"); "
  fi
  gpu_merge "compute-sanitizer $tool, $program, $group" "$log"
  gpu_set_left[$set]=$((gpu_set_left[$set] - 1))
  ((gpu_set_left[$set] > 0)) || gpu_row_of_set "$set"
}

# Any finding fails the row. The row is skipped if the tool itself failed in a group, or if a group
# had no time left.
gpu_row_of_set() {
  local set=$1 what="compute-sanitizer ${1%.*}, ${1#*.}" passed
  passed="${gpu_set_passed[$1]:-0} groups clean, ${gpu_set_checks[$1]:-0} checks on the GPU"
  gpu_is_beyond_tool "${1%.*}" linear && passed+=', none with products in bf16'
  if [[ -n ${gpu_set_found[$set]:-} ]]; then
    gpu_row "$what" fail "${gpu_set_found[$set]}$passed"
  elif [[ -n ${gpu_set_refused[$set]:-} ]]; then
    gpu_row "$what" skipped "${gpu_set_refused[$set]}"
  elif [[ -n ${gpu_set_broken[$set]:-} ]]; then
    gpu_row "$what" skipped "the tool failed itself in${gpu_set_broken[$set]}; $passed"
  elif [[ -n ${gpu_set_late[$set]:-} ]]; then
    gpu_row_late "$what" " for${gpu_set_late[$set]}; $passed"
  else
    gpu_row "$what" pass "$passed"
  fi
}

# The memory of all first: an access out of bounds explains what other tools report.
gpu_sanitizers() {
  local ids=() group pair
  if ! gpu_sanitizer=$(command -v compute-sanitizer) &&
    ! gpu_sanitizer=$(command -v "$(dirname "$CUDACXX")/compute-sanitizer"); then
    gpu_row compute-sanitizer skipped 'not installed'
    return
  fi
  for pair in memcheck.gpu_check memcheck.gpu_train_check racecheck.gpu_check \
    synccheck.gpu_check initcheck.gpu_check; do
    gpu_name_parts "${pair#*.}" --groups
    for group in "${gpu_names[@]}"; do
      [[ $group != nccl ]] || continue # NCCL's own kernels
      ids+=("$pair.$group")
      gpu_set_left[$pair]=$((${gpu_set_left[$pair]:-0} + 1))
    done
  done
  gpu_pool gpu_start_tool gpu_end_tool "${ids[@]}"
}
