#!/usr/bin/env bash
# Installs missing compilers for `make gpu-compile`: clang and libclc with apt-get as root, NVIDIA's assembler with pip,
# and Intel's compiler for its GPUs from Debian's packages, the last two into target/gpu_compile, which git ignores.
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

# Intel's compiler and the libraries that it loads, unpacked rather than installed: the package also registers a driver.
unpack_ocloc() {
  local folder=target/gpu_compile/ocloc package
  if [ -x "$folder/usr/bin/ocloc" ] || ! command -v apt-get >/dev/null; then return; fi
  for package in intel-ocloc intel-opencl-icd; do
    if apt-cache show "$package" >/dev/null 2>&1; then break; fi
  done
  echo "==> unpacking ocloc of $package into $folder (apt-get download)"
  rm -rf "$folder.partial"
  mkdir -p "$folder.partial/packages"
  if (cd "$folder.partial/packages" && unpack "$package") >/dev/null 2>&1; then
    rm -rf "$folder.partial/packages" "$folder"
    mv "$folder.partial" "$folder"
  else
    rm -rf "$folder.partial"
    echo "==> ocloc cannot be had from this machine's packages: Intel's GPUs are left out"
  fi
}

# unpack PACKAGE: into the parent of the current folder, with the libraries that it needs; fails without all of them.
unpack() {
  local options=(--recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances) package
  apt-cache depends "${options[@]}" "$1" |
    grep -E '^(lib(igc|igd|opencl-clang|llvm|clang-cpp|llvmspirv)|intel-)' | sort -u | xargs apt-get download -qq || return
  for package in *.deb; do dpkg -x "$package" .. || return; done
  ls -- *.deb >../version
}

if find_tools && [ -x target/gpu_compile/ocloc/usr/bin/ocloc ]; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq; fi
unpack_ocloc
if find_tools; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
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
