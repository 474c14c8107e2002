#!/usr/bin/env bash
# Runs the tests that depend most on redis-py with the oldest and the newest release that pyproject.toml allows.
# Usage: tests/redis_py.sh PYTHON [pytest arguments]. Each release gets an environment of its own in .redis-py/.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
for release in '5.2.*' '8.*'; do
  venv=.redis-py/${release%%.\*}
  if [ ! -x "$venv/bin/python" ]; then "$python" -m venv "$venv"; fi
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]' "redis[hiredis]==$release"
  "$venv/bin/python" -c 'import redis; print("redis-py", redis.__version__)'
  "$venv/bin/python" -m pytest -p no:cacheprovider "$@" tests/storage tests/acceptance tests/limits tests/strikes
done
