#!/usr/bin/env bash
# Builds and checks the wheels for all supported releases of PyTorch, and the source distribution, in dist/release. It uploads
# nothing:
#
#   scripts/release.sh                  all releases
#   scripts/release.sh 2.11 2.13        some releases
#   scripts/release.sh --upload ...     then asks for confirmation and uploads with twine, which asks for a token
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

limit() { sed -n "/^\[package.metadata.torch\]/,/^$/s/^$1 = \"\(.*\)\"/\1/p" Cargo.toml; }

upload=
if [ "${1:-}" = --upload ]; then
  upload=yes
  shift
fi
case "${1:-}" in -*) stop "usage: scripts/release.sh [--upload] [RELEASE...]" ;; esac
releases=("$@")
if [ ${#releases[@]} -eq 0 ]; then
  oldest=$(limit oldest) newest=$(limit newest)
  for minor in $(seq "${oldest#*.}" "${newest#*.}"); do releases+=("${oldest%%.*}.$minor"); done
fi

# A release is a commit, with a section in the changelog.
[ -z "$(git status --porcelain)" ] || stop "there are uncommitted changes"
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' python/torch_opencl/__init__.py)
grep -q "^## $version" CHANGELOG.md || stop "CHANGELOG.md has no section for $version"
grep -q "^version = \"$version\"" Cargo.toml || stop "Cargo.toml has another version than the package, $version"

rm -rf dist/release
mkdir -p dist/release
for release in "${releases[@]}"; do
  echo "==> torch $release"
  make wheel TORCH="$release"
  tag=post${release/./}
  built=$(find dist -maxdepth 1 -name "torch_opencl_rs-$version.$tag-*manylinux*.whl" -newer dist/release | head -n 1)
  [ -n "$built" ] || stop "there is no manylinux wheel for torch $release in dist"
  cp "$built" dist/release/
done

RUN=$PWD/.venv/bin/python
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

# Checks that a wheel can be installed and computes, without the sources.
usual=$("$RUN" -c 'import torch; print("".join(torch.__version__.split(".")[:2]))')
installed=target/release-check
for wheel in dist/release/*.post"$usual"-*.whl; do
  [ -e "$wheel" ] || continue
  rm -rf "$installed"
  "$RUN" -m pip install --quiet --disable-pip-version-check --no-deps --target "$installed" "$wheel"
  (cd "$installed" && PYTHONPATH=$PWD "$RUN" -m torch_opencl.info)
done

echo "==> checked, in dist/release:"
(cd dist/release && sha256sum -- *.whl *.tar.gz | tee SHA256SUMS)
if [ -z "$upload" ]; then
  echo "Nothing was uploaded. To do so: scripts/release.sh --upload ${releases[*]}"
  exit 0
fi
read -r -p "Upload these files of version $version? Type the version: " answer
[ "$answer" = "$version" ] || stop "not uploaded"
twine upload dist/release/*.whl dist/release/*.tar.gz
