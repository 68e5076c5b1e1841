# shellcheck shell=bash
# Processes of ./dev gpu: each has a time limit and a log of its own, and some run side by side.

gpu_deadline=0 # in SECONDS
gpu_least=5    # seconds; with less time left no process is started
gpu_ends=      # a pipe: one line for each process that has ended

gpu_left() { printf '%d' $((gpu_deadline - SECONDS)); }

# Time limit of a process: its own, or the rest of the budget if that is less.
gpu_capped() {
  local left=$((gpu_deadline - SECONDS))
  printf '%d' $(($1 < left ? $1 : left))
}

gpu_open_pipe() {
  local pipe
  pipe=$(mktemp -u) && mkfifo -m 600 "$pipe" && exec {gpu_ends}<>"$pipe" && rm -f "$pipe"
}

# gpu_start ID CAP COMMAND...: in the background. ID is a file's name.
gpu_start() {
  local id=$1 cap
  cap=$(gpu_capped "$2")
  shift 2
  {
    local begun=$SECONDS status=0
    timeout --kill-after=5 "$cap" "$@" >"$gpu_out/running/$id.log" 2>&1 </dev/null || status=$?
    printf '%s %s %s %s\n' "$id" "$status" $((SECONDS - begun)) "$cap" >&"$gpu_ends"
  } &
}

# gpu_pool START END ID...: calls START ID for each, for as many at a time as there are cores, and
# END ID STATUS SECONDS CAP for what has ended. STATUS is late if there was no time to start it.
gpu_pool() {
  local start=$1 end=$2 wide id status seconds cap
  local -A running=()
  wide=${CKPT_GPU_PROCESSES:-$(nproc)}
  shift 2
  while (($# > 0 || ${#running[@]} > 0)); do
    if (($# > 0 && $(gpu_left) < gpu_least)); then
      "$end" "$1" late 0 0
      shift
    elif (($# > 0 && ${#running[@]} < wide)); then
      running[$1]=yes
      "$start" "$1"
      shift
    elif read -r -t $(($(gpu_left) + 30)) -u "$gpu_ends" id status seconds cap; then
      unset "running[$id]"
      "$end" "$id" "$status" "$seconds" "$cap"
    else
      for id in "${!running[@]}"; do "$end" "$id" lost 0 0; done
      running=()
    fi
  done
}

# gpu_ending STATUS SECONDS CAP OWN_CAP: sets gpu_verdict and gpu_why for a process that did not end
# by itself, or by a signal; false for any other.
gpu_ending() {
  local status=$1 seconds=$2 cap=$3 own=$4
  gpu_verdict=fail
  if [[ $status == late ]]; then
    gpu_verdict=late
    gpu_why=
  elif [[ $status == lost ]]; then
    gpu_why='nothing is known of its end'
  elif ((status == 124 || status == 137)) && ((seconds >= cap)); then
    ((cap >= own)) || gpu_verdict=late
    gpu_why=", after $seconds s"
    ((cap < own)) || gpu_why="not done after $seconds s"
  elif ((status > 128)); then
    gpu_why="ended by signal $((status - 128))"
  else
    return 1
  fi
}
