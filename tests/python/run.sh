#!/usr/bin/env bash
# usage: run.sh SOURCE_DIR [PYTEST ARGUMENTS]
# Builds the wheel, installs it into an environment of its own, and tests it there. The tests find
# the package as a user's program does: nothing leads to the checkout. PITH_PYTHON: which Python.
set -euo pipefail
readonly source=$1
shift
readonly python=${PITH_PYTHON:-python3}

tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
"$source/pith" wheel "$python"
wheels=("$source"/build/wheels/pith-*-"$tag"-*.whl)
readonly environment=$source/build/wheel/$tag/tests
[[ -x $environment/bin/python ]] || "$python" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
  --requirement "$source/tests/python/requirements.txt"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
  --force-reinstall "${wheels[-1]}"
cd "$source/tests/python"
PITH_WHEEL=${wheels[-1]} exec "$environment/bin/python" -B -m pytest -q -p no:cacheprovider \
  --ignore=torch "$@"
