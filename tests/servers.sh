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

failed=0
for kind in $kinds; do
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
    continue
  fi
  echo "$kind:"
  # shellcheck disable=SC2086
  "$@" -m "not large and not faults" --servers "$kind" $tests || failed=1
done
exit "$failed"
