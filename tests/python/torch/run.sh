#!/usr/bin/env bash
# usage: run.sh SOURCE_DIR BUILD_DIR [PYTEST ARGUMENTS]
# Builds the backend for a PyTorch in an environment of its own, against the libpith of BUILD_DIR,
# and tests it. PITH_TORCH_PYTHON: an interpreter that has PyTorch, NumPy and pytest already.
set -euo pipefail
readonly source=$1 build=$2
shift 2
readonly tree=$build/torch
python=${PITH_TORCH_PYTHON:-}
if [[ -z $python ]]; then
  python=$tree/environment/bin/python
  [[ -x $python ]] || "${PITH_PYTHON:-python3}" -m venv "$tree/environment"
  "$python" -m pip install --quiet --disable-pip-version-check \
    --requirement "$source/tests/python/torch/requirements.txt"
fi
launcher=()
if command -v ccache >/dev/null; then
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
fi
cmake -S "$source/tools/python/torch" -B "$tree" -G Ninja "${launcher[@]}" \
  -DPITH_TORCH_PYTHON="$python" -DPITH_LIBRARY="$build/lib/libpith.so" >"$build/torch.log"
cmake --build "$tree" >>"$build/torch.log" || { tail -50 "$build/torch.log"; exit 1; }
cd "$source/tests/python/torch"
export PYTHONPATH=$tree/python PYTHONDONTWRITEBYTECODE=1
case ${1:-} in
  *.py) exec "$python" -B "$@" ;;
  *) exec "$python" -B -m pytest -q -p no:cacheprovider "$@" ;;
esac
