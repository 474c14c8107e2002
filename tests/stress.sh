#!/usr/bin/env bash
# Runs the tests again and again beside two busy loops: stress.sh <pytest command …>
# STRESS_ALL: how often everything, STRESS_FAULTS: how often the fault tests. Reports every failure; fails if there is one.
set -uo pipefail
all=${STRESS_ALL:-2} faults=${STRESS_FAULTS:-10}
failures=$(mktemp)
busy=()

stop_busy_loops() {
  for pid in "${busy[@]}"; do kill "$pid" 2>/dev/null; done
  wait "${busy[@]}" 2>/dev/null
  rm -f "$failures"
}
trap stop_busy_loops EXIT
trap 'exit 130' INT TERM

for _ in 1 2; do
  (while :; do :; done) &
  busy+=($!)
done

runs=0 failed=0
run() {
  local name=$1 output
  shift
  output=$(mktemp)
  runs=$((runs + 1))
  if "$@" -q --tb=short -p no:cacheprovider >"$output" 2>&1; then
    echo "$name: $(tail -n 1 "$output")"
  else
    failed=$((failed + 1))
    echo "$name: FAILED"
    # Without the dots, and without the end of long logs.
    grep -vE '^[.sxFE]+ *\[' "$output" | cut -c 1-300 | tail -n 1500
    grep -E '^(FAILED|ERROR) ' "$output" | sed "s|^|$name: |" >>"$failures"
    # A run that ends without a list of failures counts, too.
    grep -qE '^(FAILED|ERROR) ' "$output" || echo "$name: ended without a result" >>"$failures"
  fi
  rm -f "$output"
}

for ((i = 1; i <= all; i++)); do run "everything $i/$all" "$@" -m "not large"; done
for ((i = 1; i <= faults; i++)); do run "faults $i/$faults" "$@" -m "faults and not large"; done

echo "$runs run(s), $failed with failures:"
sort "$failures" | uniq -c | sort -rn
[ "$failed" -eq 0 ]
