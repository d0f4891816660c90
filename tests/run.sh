#!/usr/bin/env bash
# What `make test` runs: care first (it is quick), then the store's tests on PostgreSQL, then all
# tests. The runner's summary of the last step is the last line.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
bin=$(dirname "$python")
unset PYTHONDONTWRITEBYTECODE  # else each process that a test starts compiles all of it anew

step() { printf '\n== %s\n' "$*"; }

step "lint, format, types, import rules, migrations"
"$bin/ruff" check .
"$bin/ruff" format --check .
SECRET_KEY=check "$bin/mypy"
"$bin/lint-imports"
data=$(mktemp -d)
trap 'wait; rm -rf "$data"' EXIT
SECRET_KEY=check FAIRLANE_DATA_DIR=$data "$python" manage.py makemigrations --check --dry-run
[ "${1:-}" != check ] || exit 0

browser=
if ! command -v chromium >/dev/null; then
  step "meanwhile: Chromium for the browser tests, from Debian's packages"
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium) >/dev/null &
  browser=$!
fi

step "the store's tests on PostgreSQL"
FAIRLANE_TEST_STORE=postgres "$python" -m pytest -q -m store -n 2

[ -z "$browser" ] || wait "$browser" ||
  { echo "Chromium takes root and apt: put a \`chromium\` on the PATH, then run it again." >&2; exit 1; }

step "all tests"
# In pytest's order: a package's product starts once a worker, and the long files do not come last.
"$python" -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder
