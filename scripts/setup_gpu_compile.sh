#!/usr/bin/env bash
# Installs missing compilers for `make gpu-compile`: clang and libclc with apt-get as root, and NVIDIA's assembler with
# pip into target/gpu_compile/nvcc, which git ignores.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${RUN:-.venv/bin/python}
NVCC=target/gpu_compile/nvcc
WANTED=tests/gpu_compile/requirements.txt

# find_tools: fails if a compiler is missing.
find_tools() { PYTHONPATH=tests "$PYTHON" -c 'from gpu_compile.tools import find; find()' 2>/dev/null; }

# The distribution's newest clang release that has a matching libclc.
newest_clang() {
  local release
  for release in 21 20 19 18 17 16; do
    if apt-cache show "clang-$release" >/dev/null 2>&1 && apt-cache show "libclc-$release" >/dev/null 2>&1; then
      echo "$release"
      return
    fi
  done
}

if find_tools; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  release=$(newest_clang)
  if [ -n "$release" ]; then
    echo "==> installing clang-$release libclc-$release (apt-get)"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "clang-$release" "libclc-$release" >/dev/null
  fi
fi
if ! find_tools; then
  echo "==> installing NVIDIA's assembler into $NVCC (pip)"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target "$NVCC" -r "$WANTED"
fi
