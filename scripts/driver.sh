#!/usr/bin/env bash
# driver.sh DRIVER COMMAND...: runs a command of this checkout with only one OpenCL driver. Installs the driver into
# .drivers if it is missing, and says so; nothing outside that folder is changed.
#
#   intel    Intel's runtime for processors, from pip
#   fpga     Intel's emulator of FPGAs, from pip: an accelerator with OpenCL 1.2
#   pocl6    PoCL 6 from Debian trixie
#   rusticl  Mesa's OpenCL on llvmpipe from Debian trixie: no fp64, 32 KiB of local memory, kernels compiled through SPIR-V
#
# If the machine has the last two, its own are used. Otherwise, as root, the command runs in a chroot of Debian trixie,
# because these drivers need its C library. The checkout and its Python are mounted there, only for that command.
set -euo pipefail

CHECKOUT=$(cd "$(dirname "$0")/.." && pwd)
DRIVERS=$CHECKOUT/.drivers
ROOT=$DRIVERS/trixie
PYTHON=${RUN:-$CHECKOUT/.venv/bin/python}
VENDORS=/etc/OpenCL/vendors
# The package python3 has the libraries that the standard library of another Python 3 is linked with.
PACKAGES=mesa-opencl-icd,ocl-icd-libopencl1,pocl-opencl-icd,python3

say() { printf '==> %s\n' "$*" >&2; }

stop() {
  printf 'driver.sh: %s\n' "$*" >&2
  exit 1
}

# with_driver FILE COMMAND...: the first variable is read by ocl-icd, the second by the Khronos loader. The drivers'
# caches, and our cache of their programs, are separate from the caches of the machine's driver.
with_driver() {
  local file=$1
  shift
  env OCL_ICD_VENDORS="$file" OCL_ICD_FILENAMES="$file" XDG_CACHE_HOME="$DRIVERS/cache/$DRIVER" "$@"
}

# from_pip LIBRARY COMMAND...: runs a command with a driver whose wheels are listed in requirements-DRIVER.txt.
from_pip() {
  local library=$DRIVERS/$DRIVER/lib/$1
  shift
  if [ ! -e "$library" ]; then
    say "installing the OpenCL driver $DRIVER into ${library%/lib/*} (pip)"
    rm -rf "$DRIVERS/$DRIVER.partial"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --ignore-installed \
      --prefix "$DRIVERS/$DRIVER.partial" -r "$CHECKOUT/scripts/requirements-$DRIVER.txt"
    mv "$DRIVERS/$DRIVER.partial" "$DRIVERS/$DRIVER"
  fi
  with_driver "$library" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${library%/*}" "$@"
}

# on_trixie NAME.icd COMMAND...: runs a command with the driver that trixie registers under that name.
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
      "releases run this again."
  if [ -d "$ROOT" ]; then return; fi
  if ! command -v debootstrap >/dev/null; then
    say "installing debootstrap (apt-get)"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
  fi
  local mirror=${DEBIAN_MIRROR:-$(debian_mirror)}
  [ -n "$mirror" ] || stop "apt is not configured with a Debian mirror: set DEBIAN_MIRROR to the URL of one"
  say "making a chroot of Debian trixie with PoCL 6 and rusticl in $ROOT (debootstrap, two minutes)"
  mkdir -p "$DRIVERS"
  rm -rf "$ROOT.partial"
  debootstrap --variant=minbase --include="$PACKAGES" trixie "$ROOT.partial" "$mirror" >"$DRIVERS/debootstrap.log" ||
    stop "debootstrap has failed; $DRIVERS/debootstrap.log says why"
  mv "$ROOT.partial" "$ROOT"
}

# The folders of the Python to mount. For the system's Python, whose prefix is /usr, only the interpreter and the standard
# library.
python_places() {
  realpath "$(dirname "$(dirname "$PYTHON")")"
  "$PYTHON" -c '
import os, sys, sysconfig
own = sys.base_prefix != "/usr"
print(sys.base_prefix if own else os.path.realpath(sys.executable) + "\n" + sysconfig.get_path("stdlib"))'
}

# The second half of on_trixie, in a separate mount namespace: mounts the folders, and runs the command in the chroot.
within() {
  local place
  for place in /proc /sys /dev /tmp "$CHECKOUT" $(python_places); do
    if [ -d "$place" ]; then mkdir -p "$ROOT$place"; else mkdir -p "$ROOT${place%/*}" && touch "$ROOT$place"; fi
    mount --rbind "$place" "$ROOT$place"
  done
  exec chroot "$ROOT" env --chdir="$PWD" "$@"
}

DRIVER=${1:-}
[ $# -ge 2 ] || stop "usage: driver.sh intel|fpga|pocl6|rusticl COMMAND..."
shift
case $DRIVER in
  --within) within "$@" ;;
  intel) from_pip libintelocl.so "$@" ;;
  fpga) from_pip libintelocl_emu.so "$@" ;;
  pocl6) on_trixie pocl.icd "$@" ;;
  rusticl) RUSTICL_ENABLE=${RUSTICL_ENABLE:-llvmpipe} on_trixie rusticl.icd "$@" ;;
  *) stop "unknown driver $DRIVER: expected intel, fpga, pocl6 or rusticl" ;;
esac
