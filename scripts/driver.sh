#!/usr/bin/env bash
# driver.sh DRIVER COMMAND...: runs a command of this checkout with one OpenCL driver and no other. Installs the driver
# into .drivers if it is missing, and says so; nothing outside that folder is changed.
#
#   intel    Intel's runtime for processors, by pip
#   pocl6    PoCL 6, Debian trixie's
#   rusticl  Mesa's OpenCL on llvmpipe, Debian trixie's: no fp64, 32 KiB of local memory, kernels by way of SPIR-V
#
# A machine that has the last two uses its own. Elsewhere, as root, the command runs in a root of Debian trixie, as these
# drivers need its C library, into which the checkout and its Python are mounted: visible to that command only, and
# gone with it.
set -euo pipefail

CHECKOUT=$(cd "$(dirname "$0")/.." && pwd)
DRIVERS=$CHECKOUT/.drivers
ROOT=$DRIVERS/trixie
PYTHON=${RUN:-$CHECKOUT/.venv/bin/python}
VENDORS=/etc/OpenCL/vendors
# Python 3 brings the libraries that the standard library of another Python 3 is linked with.
PACKAGES=mesa-opencl-icd,ocl-icd-libopencl1,pocl-opencl-icd,python3

say() { printf '==> %s\n' "$*" >&2; }

stop() {
  printf 'driver.sh: %s\n' "$*" >&2
  exit 1
}

# with_driver FILE COMMAND...: the first variable is read by ocl-icd, the second by the Khronos loader. Drivers' own
# caches, and ours of what they compile, are kept apart from those of the machine's driver.
with_driver() {
  local file=$1
  shift
  env OCL_ICD_VENDORS="$file" OCL_ICD_FILENAMES="$file" XDG_CACHE_HOME="$DRIVERS/cache/$DRIVER" "$@"
}

intel() {
  local library=$DRIVERS/intel/lib/libintelocl.so
  if [ ! -e "$library" ]; then
    say "installing Intel's OpenCL runtime for processors into ${library%/lib/*} (pip)"
    rm -rf "$DRIVERS/intel.partial"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --ignore-installed \
      --prefix "$DRIVERS/intel.partial" -r "$CHECKOUT/scripts/requirements-intel.txt"
    mv "$DRIVERS/intel.partial" "$DRIVERS/intel"
  fi
  with_driver "$library" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${library%/*}" "$@"
}

# on_trixie NAME.icd COMMAND...: with the driver that trixie registers so.
on_trixie() {
  local file=$VENDORS/$1
  shift
  if is_installed "$file"; then
    with_driver "$file" "$@"
  else
    make_root
    with_driver "$file" unshare --mount --propagation private "$0" --within "$@"
  fi
}

is_installed() {
  [ -e "$1" ] || return 1
  [ "$DRIVER" = rusticl ] || dpkg --compare-versions "$(dpkg-query -Wf '${Version}' pocl-opencl-icd)" ge 6
}

# The mirror that apt is configured with.
debian_mirror() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 2>/dev/null | head -n 1
}

make_root() {
  [ "$(id -u)" = 0 ] ||
    stop "$DRIVER is not installed here. As root: on Debian trixie or newer, apt-get install ${PACKAGES//,/ }; on older" \
      "ones run this once more."
  if [ -d "$ROOT" ]; then return; fi
  if ! command -v debootstrap >/dev/null; then
    say "installing debootstrap (apt-get)"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
  fi
  local mirror=${DEBIAN_MIRROR:-$(debian_mirror)}
  [ -n "$mirror" ] || stop "apt names no mirror of Debian here: set DEBIAN_MIRROR to the URL of one"
  say "making a root of Debian trixie with PoCL 6 and rusticl in $ROOT (debootstrap, two minutes)"
  mkdir -p "$DRIVERS"
  rm -rf "$ROOT.partial"
  debootstrap --variant=minbase --include="$PACKAGES" trixie "$ROOT.partial" "$mirror" >"$DRIVERS/debootstrap.log" ||
    stop "debootstrap has failed; $DRIVERS/debootstrap.log says why"
  mv "$ROOT.partial" "$ROOT"
}

# Of a Python of the system's, whose prefix is everything, the interpreter and the standard library.
python_places() {
  realpath "$(dirname "$(dirname "$PYTHON")")"
  "$PYTHON" -c '
import os, sys, sysconfig
own = sys.base_prefix != "/usr"
print(sys.base_prefix if own else os.path.realpath(sys.executable) + "\n" + sysconfig.get_path("stdlib"))'
}

# The second half of on_trixie, in a namespace of its own: mounts, and runs the command in the root.
within() {
  local place
  for place in /proc /sys /dev /tmp "$CHECKOUT" $(python_places); do
    if [ -d "$place" ]; then mkdir -p "$ROOT$place"; else mkdir -p "$ROOT${place%/*}" && touch "$ROOT$place"; fi
    mount --rbind "$place" "$ROOT$place"
  done
  exec chroot "$ROOT" env --chdir="$PWD" "$@"
}

DRIVER=${1:-}
[ $# -ge 2 ] || stop "usage: driver.sh intel|pocl6|rusticl COMMAND..."
shift
case $DRIVER in
  --within) within "$@" ;;
  intel) intel "$@" ;;
  pocl6) on_trixie pocl.icd "$@" ;;
  rusticl) RUSTICL_ENABLE=${RUSTICL_ENABLE:-llvmpipe} on_trixie rusticl.icd "$@" ;;
  *) stop "there is no driver $DRIVER here: it is one of intel, pocl6 and rusticl" ;;
esac
