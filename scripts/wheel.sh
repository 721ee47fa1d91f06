#!/usr/bin/env bash
# Makes the wheel for the PyTorch of RUN (a Python) in dist. Its tag says on which systems it runs: where the C and C++
# libraries are at least as new as the ones that the library was linked with.
set -euo pipefail
cd "$(dirname "$0")/.."

RUN=${RUN:-.venv/bin/python}
RAW=target/wheel

rm -rf "$RAW"
"$RUN" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$RAW" .
"$RUN" -m auditwheel show "$RAW"/*.whl
# PyTorch's libraries are excluded: they come with PyTorch, and the library finds them next to its package.
"$RUN" -m auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --wheel-dir dist "$RAW"/*.whl
ls -l dist
