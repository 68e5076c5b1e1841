#!/usr/bin/env bash
# Runs what a user would measure of one machine, bench after bench, each for a bounded time.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: bench/service/all.sh CKPTBENCH [FLAGS]         all: save restore fragments stall catalog
                                                      export codecs
       bench/service/all.sh CKPTBENCH BENCH [FLAGS]   one of them, with any of its flags

Flags of all: --dir DIR (build/bench of this checkout), --json, --io ENGINE (not of codecs), and
--pairs, --pairs-max and --seconds (of save, restore, fragments and stall). A few minutes each, up
to five more where the machine is not quiet, and none more than 20. Exit code: 1 if one failed.
TEXT
}

benches=(save restore fragments stall catalog export codecs)
seconds_max=1200 # of one: beyond it the disk is too slow for the sizes that are written

refuse() {
  printf 'bench: %s\n' "$*" >&2
  usage >&2
  exit 2
}

# Sorts the flags of all by who has them.
scratch=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")/build/bench
dir=$scratch of_all=() of_paired=() of_engines=() one=()
sort_flags() {
  while [[ $# -gt 0 ]]; do
    case $1 in
      --json) of_all+=("$1") && shift && continue ;;
      --dir | --io | --pairs | --pairs-max | --seconds) ;;
      *) refuse "$1: only behind the name of a bench, as in save $1" ;;
    esac
    [[ $# -ge 2 ]] || refuse "$1: has no value"
    case $1 in
      --dir) dir=$2 ;;
      --io) of_engines+=("$1" "$2") ;;
      *) of_paired+=("$1" "$2") ;;
    esac
    shift 2
  done
}

flags_of() {
  case $1 in
    save | restore | fragments | stall) printf '%s\n' "${of_engines[@]}" "${of_paired[@]}" ;;
    catalog | export) printf '%s\n' "${of_engines[@]}" ;;
  esac
}

[[ $# -ge 1 ]] || refuse 'which ckptbench?'
ckptbench=$1
shift
if [[ $# -gt 0 && $1 != -* ]]; then
  [[ " ${benches[*]} " == *" $1 "* ]] || refuse "$1: one of ${benches[*]}"
  benches=("$1")
  one=("${@:2}")
else
  sort_flags "$@"
fi
# The flags of a single named bench may already contain its folder.
[[ " ${one[*]} " == *' --dir'[\ =]* ]] || one+=(--dir "$dir")
[[ $dir != "$scratch" ]] || mkdir -p "$dir"

# A bench that is stopped ends in order, with an exit code: none of the others follows it.
trap 'exit 130' INT
failed=()
for bench in "${benches[@]}"; do
  mapfile -t flags < <(flags_of "$bench" | sed '/^$/d')
  printf 'bench: %s\n' "$bench" >&2
  # In the foreground, so that who stops this stops the bench; it takes its daemons along.
  timeout --foreground --kill-after=30 "$seconds_max" "$ckptbench" "$bench" "${flags[@]}" \
    "${of_all[@]}" "${one[@]}" || failed+=("$bench")
done
[[ ${#failed[@]} -eq 0 ]] || { printf 'bench: failed: %s\n' "${failed[*]}" >&2; exit 1; }
