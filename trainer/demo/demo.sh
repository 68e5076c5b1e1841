#!/usr/bin/env bash
# ./dev demo: a run that loses a rank and its daemon, and what is left to see afterwards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
unset CKPTD_SOCKET CKPTD_RUN

readonly bin=build/release/bin
readonly home=build/demo
readonly run=demo
steps=300
data=()
svg=$home/loss.svg

usage() {
  cat <<TEXT
usage: ./dev demo [--data PATH...] [--steps N] [--svg FILE]

  --data PATH...  files and folders to learn from (default: this checkout's sources)
  --steps N       training steps, at least 40 (default: $steps)
  --svg FILE      where the loss curve goes (default: $svg)
TEXT
}

# This script has changed its folder; relative paths are the caller's.
callers_path() {
  if [[ $1 == /* ]]; then printf '%s' "$1"; else printf '%s/%s' "${DEV_CALLED_FROM:-$PWD}" "$1"; fi
}

bad_usage() {
  printf 'dev demo: %s\n' "$1" >&2
  usage >&2
  exit 2
}

while [[ $# -gt 0 ]]; do
  case $1 in
    --data)
      shift
      while [[ $# -gt 0 && $1 != --* ]]; do
        data+=("$(callers_path "$1")")
        shift
      done
      [[ ${#data[@]} -gt 0 ]] || bad_usage '--data needs a path'
      ;;
    --steps)
      [[ ${2:-} =~ ^[0-9]+$ && $2 -ge 40 ]] || bad_usage '--steps needs a number, at least 40'
      steps=$2
      shift 2
      ;;
    --svg)
      [[ -n ${2:-} ]] || bad_usage '--svg needs a file'
      svg=$(callers_path "$2")
      shift 2
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) bad_usage "unknown argument $1" ;;
  esac
done

# --- what is shown ---------------------------------------------------------------------------

bold='' dim='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
  bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi

part=0
section() {
  part=$((part + 1))
  printf '\n%s%d. %s%s\n' "$bold" "$part" "$1" "$plain"
  [[ $# -lt 2 ]] || printf '%s\n' "${@:2}"
  printf '\n'
}

# Shows a command as a person would type it, then runs it. Descriptor 3 is the reader, even where
# the command's own output goes elsewhere.
exec 3>&1
show() {
  printf '%s$ %s%s\n' "$dim" "${*//$bin\//}" "$plain" >&3
  "$@"
}

# --- the daemon that answers after the run ---------------------------------------------------

scratch=$(mktemp -d) # short: the name of a unix socket has at most 107 bytes
daemon=''
stop_daemon() {
  [[ -n $daemon ]] || return 0
  kill "$daemon" 2>/dev/null || true
  wait "$daemon" 2>/dev/null || true
  daemon=''
}
trap 'stop_daemon; rm -rf "$scratch"' EXIT
# A command that was interrupted has ended well, for itself: the story must not go on all the same.
trap 'exit 130' INT
trap 'exit 143' TERM

start_daemon() {
  export CKPTD_SOCKET=$scratch/s
  "$bin/ckptd" --data "$home/data" --listen "unix:$CKPTD_SOCKET" --arena 256MiB \
    2>"$home/ckptd-after.log" &
  daemon=$!
  for _ in $(seq 300); do
    grep -q '^ready$' "$home/ckptd-after.log" && return
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  printf 'dev demo: ckptd does not start:\n' >&2
  cat "$home/ckptd-after.log" >&2
  exit 1
}

# Bits, not rounded numbers: one that differs anywhere shows.
compare_losses() {
  python3 - "$@" <<'PYTHON'
import json
import sys

disturbed, undisturbed = (json.load(open(path))["losses"] for path in sys.argv[1:])
differing = [a["step"] for a, b in zip(disturbed, undisturbed) if a["loss_bits"] != b["loss_bits"]]
if differing or len(disturbed) != len(undisturbed):
    sys.exit(f"the losses differ, first at step {differing[0] if differing else 'of the end'}")
print(f"No: all {len(disturbed)} losses are the same, bit for bit.")
PYTHON
}

# --- the story -------------------------------------------------------------------------------

rm -rf "$home"
mkdir -p "$home"
rank_dies=$((steps * 11 / 20 + 3))
daemon_dies=$((steps * 3 / 4 + 2))
train=("$bin/moetrain" run --ranks 4 --steps "$steps" --checkpoint-every 10 --run "$run"
  --data-dir "$home/data" --on-loss restart --kill "2@$rank_dies" --kill-daemon "$daemon_dies"
  --report "$home/report.json" --metrics "$home/metrics.jsonl")
undisturbed=("$bin/moetrain" run --ranks 4 --steps "$steps" --checkpoint-every 10 --run "$run"
  --report "$home/undisturbed.json")
if [[ ${#data[@]} -gt 0 ]]; then
  train+=(--data "${data[@]}")
  undisturbed+=(--data "${data[@]}")
fi

section "Training on 4 ranks, with two disasters" \
  "A Mixture-of-Experts model learns ${data[*]:-the sources of this project}, byte by byte." \
  "In step $rank_dies rank 2 is killed with kill -9; after step $daemon_dies ckptd itself is."
show "${train[@]}" >"$home/train.log"

section "What the disasters cost"
show "$bin/moetrain" report "$home/report.json" --svg "$svg"

section "Did they change what was learned? The same training, undisturbed"
show "${undisturbed[@]}" >"$home/undisturbed.log"
compare_losses "$home/report.json" "$home/undisturbed.json"

# Built only now, so that training on a new machine does not wait for it.
./dev build --target ckptctl
start_daemon
section "The history, asked of a daemon that was started again on the same data"
show "$bin/ckptctl" log "$run" --limit 8
printf '\n'
show "$bin/ckptctl" experts "$run@latest" | head -n 8
printf '...\n'

section "Every byte of it checked"
show "$bin/ckptctl" verify

section "The model, exported for Hugging Face"
show "$bin/ckptctl" export "$run@latest" --out "$home/export"
ls -l "$home/export" | tail -n +2 | awk '{printf "%12d  %s\n", $5, $9}'

printf '\n%sIt is all still there:%s\n' "$bold" "$plain"
printf '  the loss curve  %s\n' "$svg"
printf '  the report      %s\n' "$home/report.json"
printf '  the model       %s\n' "$home/export"
printf '  the store       %s/ckptd --data %s\n' "$bin" "$home/data"
