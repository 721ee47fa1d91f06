#!/usr/bin/env bash
# Prepares a Debian or Ubuntu machine to build and run torch-opencl-rs: build tools, an OpenCL driver if there is none, and
# the Python environment VENV (.venv) with PyTorch TORCH (by default the version in requirements-dev.txt). Installs only what
# is missing, and says so. As root it installs system packages with apt-get; otherwise it lists the missing ones.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
# Exists while the environment is made.
UNFINISHED=$VENV/unfinished
PACKAGE_LISTS_ARE_FRESH=
export PATH="$PWD/$VENV/bin:$PATH"

say() { printf '==> %s\n' "$*"; }

stop() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
  say "installing $* (apt-get)"
  if [ -z "$PACKAGE_LISTS_ARE_FRESH" ]; then
    apt-get update -qq
    PACKAGE_LISTS_ARE_FRESH=yes
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need COMMAND PACKAGE...: installs the packages as root if the command is missing.
need() {
  local command=$1
  shift
  if command -v "$command" >/dev/null; then return; fi
  can_install || stop "there is no $command. As root: apt-get install $*"
  apt_install "$@"
}

# at_least WANTED FOUND: compares two version numbers.
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

rust_version() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

has_rust() {
  local found
  found=$(cargo --version 2>/dev/null | grep -oE '[0-9]+\.[0-9.]+' | head -n 1) || return 1
  at_least "$(rust_version)" "$found"
}

# The distribution's package with a cargo that is new enough. Debian has one for building Firefox (cargo-web), Ubuntu one
# per version. Old plain packages have another version scheme, such as cargo 0.66 for Rust 1.63, and are correctly rejected.
cargo_package() {
  local candidate package
  for package in cargo-web $(apt-cache pkgnames cargo-1. | grep -E '^cargo-1\.[0-9]+$' | sort -rV) cargo; do
    candidate=$(apt-cache policy "$package" | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p')
    if [ -n "$candidate" ] && at_least "$(rust_version)" "$candidate"; then
      echo "$package"
      return
    fi
  done
}

setup_rust() {
  if has_rust; then return; fi
  local cure package suffix
  cure="Install Rust $(rust_version) or newer with rustup (rustup.rs), open a new shell and run this again."
  can_install || stop "there is no cargo, or it is too old. $cure"
  apt-get update -qq
  PACKAGE_LISTS_ARE_FRESH=yes
  package=$(cargo_package)
  [ -n "$package" ] || stop "this distribution has no package with a new enough Rust. $cure"
  suffix=${package#cargo}
  apt_install ca-certificates "$package" "rustc$suffix"
  apt_install "rust$suffix-clippy" "rustfmt$suffix" || say "without clippy and rustfmt, \`make lint\` will not run"
  link_versioned_rust
  has_rust || stop "the cargo of $package is not the first one in PATH. $cure"
}

# Ubuntu's versioned packages are not in PATH; the Makefile adds .venv/bin to it.
link_versioned_rust() {
  local directory
  directory=$(find /usr/lib -maxdepth 2 -path '/usr/lib/rust-1.*/bin' | sort -rV | head -n 1)
  if [ -z "$directory" ] || has_rust; then return; fi
  mkdir -p "$VENV/bin"
  ln -sf "$directory"/* "$VENV/bin/"
}

setup_python() {
  need "$PYTHON" python3 python3-venv
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    stop "$PYTHON is older than 3.10. Install a newer one and run: make PYTHON=/path/to/python3 ..."
  if [ -e "$UNFINISHED" ]; then
    say "making $VENV again, because that was interrupted"
    rm -rf "$VENV"
    link_versioned_rust
  fi
  # An environment without pip was interrupted as well, or made by another tool: it gets pip, and keeps its packages.
  if [ ! -x "$VENV/bin/python" ] || ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then make_venv; fi
  if ! requirements | cmp -s - "$VENV/requirements-installed.txt"; then
    say "installing the packages of requirements-dev.txt into $VENV (PyTorch is large)"
    remove_torn_packages
    requirements >"$VENV/requirements.txt"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -r "$VENV/requirements.txt"
    mv "$VENV/requirements.txt" "$VENV/requirements-installed.txt"
  fi
}

# requirements-dev.txt with the requested PyTorch. Some releases of PyTorch do not allow the setuptools in that file.
requirements() {
  local usual
  usual=$(sed -n 's/^torch==//p' requirements-dev.txt)
  if [ "${TORCH:-$usual}" = "$usual" ]; then
    cat requirements-dev.txt
  else
    sed -e "s/^torch==.*/torch==$TORCH/" -e 's/^setuptools==.*/setuptools>=77/' requirements-dev.txt
  fi
}

make_venv() {
  if ! "$PYTHON" -c 'import ensurepip' 2>/dev/null; then
    can_install || stop "Python cannot make virtual environments here. As root: apt-get install python3-venv"
    apt_install python3-venv
  fi
  say "making the Python environment $VENV"
  # An existing environment is not marked, so that it is not removed after an interruption.
  if [ ! -e "$VENV/pyvenv.cfg" ]; then
    mkdir -p "$VENV"
    touch "$UNFINISHED"
  fi
  "$PYTHON" -m venv "$VENV"
  rm -f "$UNFINISHED"
}

# pip writes a package's file list last, but treats a package without a list, after an interruption, as installed.
remove_torn_packages() {
  local information
  for information in "$VENV"/lib/python3*/site-packages/*.dist-info; do
    if [ ! -d "$information" ] || [ -e "$information/RECORD" ]; then continue; fi
    say "removing the incomplete installation of $(basename "$information" .dist-info)"
    rm -rf "$information"
  done
}

has_driver() {
  "$VENV/bin/python" -c '
import runpy, sys
driver = runpy.run_path("python/torch_opencl/_embedded_driver.py")
sys.exit(not (driver["has_driver"]() or driver["installed_library"]()))'
}

setup_driver() {
  if has_driver; then return; fi
  if can_install && apt_install ocl-icd-libopencl1 pocl-opencl-icd; then return; fi
  [ "$(uname -m)" = x86_64 ] ||
    stop "there is no OpenCL driver. As root: apt-get install ocl-icd-libopencl1 pocl-opencl-icd"
  say "installing Intel's OpenCL runtime for processors into $VENV (pip)"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -r scripts/requirements-intel.txt
}

need g++ g++
setup_rust
setup_python
setup_driver
