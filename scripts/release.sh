#!/usr/bin/env bash
# Builds and checks the wheel for all supported releases of PyTorch, and the source distribution, in dist/release. It
# uploads nothing:
#
#   scripts/release.sh
#   scripts/release.sh --upload     then asks for confirmation and uploads with twine, which asks for a token
#
# A wheel needs the C library of the machine that links it, or a newer one: build on the oldest supported distribution.
# auditwheel sets the tag (manylinux_...), and refuses a library with requirements that no tag allows. check_release.py compares
# the files in the archives with those that git tracks, and twine, which is installed into target/twine, checks their metadata.
set -euo pipefail
cd "$(dirname "$0")/.."

stop() {
  printf 'release: %s\n' "$*" >&2
  exit 1
}

upload=
if [ "${1:-}" = --upload ]; then
  upload=yes
  shift
fi
[ $# -eq 0 ] || stop "usage: scripts/release.sh [--upload]"
RUN=$PWD/.venv/bin/python
mapfile -t releases < <(python3 -c 'from build_support.checks import supported_releases; print(*supported_releases(), sep="\n")')

# A release is a commit, with a section in the changelog.
[ -z "$(git status --porcelain)" ] || stop "there are uncommitted changes"
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' python/torch_opencl/__init__.py)
grep -q "^## $version" CHANGELOG.md || stop "CHANGELOG.md has no section for $version"
grep -q "^version = \"$version\"" Cargo.toml || stop "Cargo.toml has another version than the package, $version"

rm -rf dist/release
mkdir -p dist/release
for release in "${releases[@]}"; do
  echo "==> torch $release"
  make build TORCH="$release"
done
make wheel
built=$(find dist -maxdepth 1 -name "torch_opencl_rs-$version-*manylinux*.whl" -newer dist/release | head -n 1)
[ -n "$built" ] || stop "there is no manylinux wheel for all releases in dist"
cp "$built" dist/release/

TWINE=$PWD/target/twine
twine() { PYTHONPATH=$TWINE "$RUN" -m twine "$@"; }

# From the commit, because a checkout has other files.
echo "==> the source distribution"
rm -rf target/sdist
mkdir -p target/sdist
git archive HEAD | tar -x -C target/sdist
(cd target/sdist && "$RUN" -c 'import sys; sys.path.insert(0, "."); from build_support import backend
backend.build_sdist(sys.argv[1])' "$OLDPWD/dist/release" >/dev/null)

"$RUN" scripts/check_release.py dist/release/*.whl dist/release/*.tar.gz
[ -d "$TWINE" ] || "$RUN" -m pip install --quiet --disable-pip-version-check --target "$TWINE" twine
twine check --strict dist/release/*.whl dist/release/*.tar.gz

# Checks that the wheel computes with each PyTorch, without the sources.
installed=target/release-check
rm -rf "$installed"
"$RUN" -m pip install --quiet --disable-pip-version-check --no-deps --target "$installed" dist/release/*.whl
usual=$("$RUN" -c 'from build_support.checks import torch_release; print(torch_release())')
for release in "${releases[@]}"; do
  python=$PWD/.venv-$release/bin/python
  [ "$release" != "$usual" ] || python=$RUN
  (cd "$installed" && PYTHONPATH=$PWD "$python" -m torch_opencl.info)
done

echo "==> checked, in dist/release:"
(cd dist/release && sha256sum -- *.whl *.tar.gz | tee SHA256SUMS)
if [ -z "$upload" ]; then
  echo "Nothing was uploaded. To do so: scripts/release.sh --upload"
  exit 0
fi
read -r -p "Upload these files of version $version? Type the version: " answer
[ "$answer" = "$version" ] || stop "not uploaded"
twine upload dist/release/*.whl dist/release/*.tar.gz
