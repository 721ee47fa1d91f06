#!/usr/bin/env bash
# Makes the wheel for the PyTorch of the environment of RUN (a Python) in dist. Its tag says on which systems it runs:
# those whose C and C++ libraries are no older than what the library was linked with.
set -euo pipefail
cd "$(dirname "$0")/.."

RUN=${RUN:-.venv/bin/python}
RAW=target/wheel

rm -rf "$RAW"
"$RUN" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$RAW" .
"$RUN" -m auditwheel show "$RAW"/*.whl
# PyTorch's own libraries come with PyTorch; the library finds them beside its package.
"$RUN" -m auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --wheel-dir dist "$RAW"/*.whl
ls -l dist
