# shellcheck shell=bash
# What ./dev gpu has found: rows, the merged log, the JSON document and the table. Needs bash and
# coreutils alone, and writes the document anew with each row: nobody knows what comes to an end.

gpu_out=         # output folder: gpu.json, gpu.log, running/ with logs not yet merged
gpu_status=running
gpu_whole=true   # false as soon as something is left out
gpu_members=()   # of the document: '"commit": "abc"'
gpu_lacks=()     # what this machine would need for all rows
gpu_results=()   # rows, as JSON
gpu_table=()     # rows, for people
gpu_late=0       # rows that had no time
declare -A gpu_counts=() # "bound pass" -> how many rows

# The columns of a row; they are as wide as those of bench/service/gpu/report.cc.
gpu_line_format='%-44s %10s %10s  %-7s  %-21s  %5s  %s'

gpu_open() {
  mkdir -p "$1/running" && gpu_out=$(cd "$1" && pwd) || return
  rm -f "$gpu_out"/running/*
  : >"$gpu_out/gpu.log" && gpu_write
}

# A JSON string, in printable ASCII.
gpu_quoted() {
  local LC_ALL=C text=$1
  text=${text//[^ -~]/ }
  text=${text//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

gpu_member() { gpu_members+=("$(gpu_quoted "$1"): $(gpu_quoted "$2")"); }

# The document, as a whole or not at all.
gpu_write() {
  local lacks='' separator='' word
  for word in "${gpu_lacks[@]}"; do lacks+="${lacks:+, }$(gpu_quoted "$word")"; done
  {
    printf '{\n  "status": "%s",\n  "lacks": [%s],\n' "$gpu_status" "$lacks"
    printf '  "failed": %d,\n  "without_time": %d,\n' "$(gpu_count fail)" "$gpu_late"
    printf '  "whole": %s,\n  "seconds": %d,\n' "$gpu_whole" "$SECONDS"
    for word in "${gpu_members[@]}"; do printf '  %s,\n' "$word"; done
    printf '  "results": ['
    for word in "${gpu_results[@]}"; do
      printf '%s\n    %s' "$separator" "$word"
      separator=,
    done
    printf '\n  ]\n}\n'
  } >"$gpu_out/gpu.json.new" && mv -f "$gpu_out/gpu.json.new" "$gpu_out/gpu.json"
}

# gpu_count VERDICT [KIND]: number of rows with this verdict, of one kind if given: bound or other.
gpu_count() {
  local kinds=${2:-bound other} sum=0 kind
  for kind in $kinds; do sum=$((sum + ${gpu_counts["$kind $1"]:-0})); done
  printf '%d' "$sum"
}

# gpu_add KIND VERDICT LINE JSON: a row of the table.
gpu_add() {
  local key="$1 $2"
  gpu_counts[$key]=$((${gpu_counts[$key]:-0} + 1))
  gpu_table+=("$3")
  gpu_results+=("$4")
  printf 'row: %s\n' "$3" >>"$gpu_out/gpu.log"
  gpu_write
  say "$3"
}

# gpu_row WHAT VERDICT REASON [SECONDS]: a row without figures.
gpu_row() {
  local line json
  # shellcheck disable=SC2059
  printf -v line "$gpu_line_format" "$1" - - '' - - "$2${3:+: $3}"
  json="{\"what\": $(gpu_quoted "$1"), \"verdict\": \"$2\", \"reason\": $(gpu_quoted "$3")"
  [[ -z ${4:-} ]] || json+=", \"seconds\": $4"
  gpu_add other "$2" "$line" "$json}"
}

# A row that the budget had no time for; the reason may say more.
gpu_row_late() {
  gpu_late=$((gpu_late + 1))
  gpu_whole=false
  gpu_row "$1" skipped "no time left${2:+$2}"
}

# gpu_merge NAME LOG: the log of one process becomes a part of the merged one.
gpu_merge() {
  if [[ -s $2 ]]; then
    {
      printf '\n=== %s\n' "$1"
      cat "$2"
    } >>"$gpu_out/gpu.log"
  fi
  rm -f "$2"
}

gpu_print_table() {
  # shellcheck disable=SC2059
  printf "$gpu_line_format\n" what value limit unit 'ratio [95 %]' bound verdict
  ((${#gpu_table[@]} == 0)) || printf '%s\n' "${gpu_table[@]}"
  ((${#gpu_lacks[@]} == 0)) || printf 'this machine lacks: %s\n' "${gpu_lacks[*]}"
  printf 'bounds that must hold: %d shown, %d missed, %d inconclusive; ' \
    "$(gpu_count pass bound)" "$(gpu_count fail bound)" "$(gpu_count inconclusive bound)"
  printf 'all else: %d passed, %d failed, %d skipped (%d for lack of time), which shows nothing\n' \
    "$(gpu_count pass other)" "$(gpu_count fail other)" "$(gpu_count skipped)" "$gpu_late"
}
