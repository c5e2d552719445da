#!/usr/bin/env bash
# usage: run.sh [--torch] SOURCE_DIR [PYTEST ARGUMENTS | SCRIPT.py ARGUMENTS]
# Builds the wheel, installs it into an environment of its own, and tests it there. The tests find
# the package as a user's program does: nothing leads to the checkout. --torch: with PyTorch and its
# backend, the tests of torch/. PITH_PYTHON: which Python.
set -euo pipefail
folder=.
options=()
if [[ $1 == --torch ]]; then
  folder=torch
  options=(--torch)
  shift
fi
readonly source=$1
shift
readonly python=${PITH_PYTHON:-python3}

tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
"$source/pith" wheel "${options[@]}" "$python"
wheels=("$source"/build/wheels/pith-*-"$tag"-*.whl)
readonly environment=$source/build/wheel/$tag/tests${options[*]}
[[ -x $environment/bin/python ]] || "$python" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
  --requirement "$source/tests/python/$folder/requirements.txt"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
  --force-reinstall "${wheels[-1]}"
cd "$source/tests/python/$folder"
export PITH_WHEEL=${wheels[-1]} PYTHONDONTWRITEBYTECODE=1
if [[ ${1:-} == *.py ]]; then
  exec "$environment/bin/python" -B "$@"
fi
exec "$environment/bin/python" -B -m pytest -q -p no:cacheprovider --ignore=torch "$@"
