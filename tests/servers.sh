#!/usr/bin/env bash
# Runs tests on every kind of server: servers.sh some|all <pytest command ...>
# SERVERS: the kinds, as --servers takes them. A program that this machine lacks is skipped with a word.
# Reports every failure; fails if there is one.
set -uo pipefail
cd "$(dirname "$0")/.."
how=$1
shift
python=$1
case $how in
some)
  # docket's own engine has run everything already.
  kinds=${SERVERS:-redis-6.2 redis-7 cluster sentinel}
  tests="tests/acceptance/test_docket_scheduling.py tests/acceptance/test_execution_states.py tests/limits/test_concurrency.py"
  ;;
all)
  kinds=${SERVERS:-redis-6.2 redis-7 valkey-9 cluster sentinel}
  tests="tests/acceptance tests/limits tests/strikes tests/worker tests/inspection"
  ;;
*)
  echo "usage: servers.sh some|all <pytest command>" >&2
  exit 2
  ;;
esac

# run_on <kind> <pytest command ...>
run_on() {
  local kind=$1 program missing
  shift
  program=${kind#cluster}
  program=${program#sentinel}
  program=${program#:}
  if [ -n "$program" ] && ! missing=$("$python" -c '
import sys
from docket.testing.servers import ServerNotFound, find_binary
try:
    find_binary(sys.argv[1])
except ServerNotFound as error:
    sys.exit(str(error))
' "$program" 2>&1); then
    echo "$kind: skipped, $missing"
    return 0
  fi
  echo "$kind:"
  # shellcheck disable=SC2086
  "$@" -m "not large and not faults" --servers "$kind" $tests
}

failed=0
if [ "$how" = all ]; then
  for kind in $kinds; do
    run_on "$kind" "$@" || failed=1
  done
  exit "$failed"
fi

# A test process takes longer to start than these few tests last. So
# each kind has one process, and all of them run at the same time.
outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT
runs=()
for kind in $kinds; do
  run_on "$kind" "$@" -n 0 >"$outputs/$kind" 2>&1 &
  runs+=($!)
done
for kind in $kinds; do
  wait "${runs[0]}" || failed=1
  runs=("${runs[@]:1}")
  cat "$outputs/$kind"
done
exit "$failed"
