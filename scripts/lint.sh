#!/usr/bin/env bash
# Formats and lints the four languages. "check" changes nothing and fails on the first finding; "fix" formats. Arguments
# after "check" are packages that clippy checks besides the main one.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t clang < <(find cpp tests/gpu_compile tests/coalescing -name '*.cpp' -o -name '*.h'; find rust -name '*.cl')

# Distributions and rustup ship these two separately from cargo.
require_rust_components() {
  local component
  for component in fmt clippy; do
    if cargo "$component" --version >/dev/null 2>&1; then continue; fi
    echo "lint: cargo has no $component. Run: rustup component add rustfmt clippy" >&2
    exit 1
  done
}

step() {
  echo "==> $*"
  "$@"
}

require_rust_components
task=${1:-}
shift || true
case $task in
  check)
    step ruff check
    step ruff format --check
    step mypy
    step cargo fmt --check
    echo "==> clang-format (${#clang[@]} files)"
    clang-format --dry-run -Werror "${clang[@]}"
    step cargo clippy --release --package torch-opencl --package torch-opencl-launch "${@/#/--package=}" --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" step cargo doc --release --no-deps --document-private-items --quiet
    ;;
  fix)
    step ruff check --fix
    step ruff format
    step cargo fmt
    step clang-format -i "${clang[@]}"
    ;;
  *)
    echo "usage: scripts/lint.sh check [PACKAGE...]|fix" >&2
    exit 2
    ;;
esac
