"""Requirements of a build, each with a sentence that says what to install."""

import importlib.util
import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The first series that supports licence expressions.
SETUPTOOLS_SERIES = 77


def check_toolchain() -> None:
    """Check that the requirements of a build are installed, in supported versions.

    Raises:
        SystemExit: a requirement is missing; the message says what to install.
    """
    for check in (_check_torch, _check_setuptools, _check_cargo, _check_compiler):
        problem = check()
        if problem is not None:
            raise SystemExit(f"torch-opencl-rs cannot be built: {problem}")


def supported_torch() -> tuple[str, str]:
    """Return the oldest and the newest supported release of PyTorch, from Cargo.toml.

    Returns:
        Minor versions such as "2.11" and "2.15".
    """
    section = (ROOT / "Cargo.toml").read_text().partition("\n[package.metadata.torch]\n")[2]
    oldest, newest = (re.search(rf'^{key} = "([\d.]+)"', section, re.M)[1] for key in ("oldest", "newest"))
    return oldest, newest


def supported_releases() -> list[str]:
    """Return all supported releases of PyTorch.

    Returns:
        Minor versions such as "2.11", the oldest first.
    """
    (major, first), (_, last) = map(_numbers, supported_torch())
    return [f"{major}.{minor}" for minor in range(first, last + 1)]


def torch_release() -> str:
    """Return the release of the PyTorch to build against; a library serves all patch releases of it.

    Returns:
        A minor version such as "2.13".
    """
    return ".".join(torch_version().split(".")[:2])


def torch_version() -> str:
    """Return the version of the PyTorch to build against, without its local part.

    Returns:
        A version such as "2.13.0".
    """
    return metadata.version("torch").split("+")[0]


def _check_torch() -> str | None:
    oldest, newest = supported_torch()
    if importlib.util.find_spec("torch") is None:
        return (
            f"there is no PyTorch in this Python. Run `pip install torch=={newest}.*`, and build "
            "with `pip install --no-build-isolation`, which lets the build see it."
        )
    if not _numbers(oldest) <= _numbers(torch_release()) <= _numbers(newest):
        return (
            f"it needs torch {oldest} to {newest} and this Python has {torch_version()}. "
            f"Run `pip install torch=={newest}.*`."
        )
    return None


def _check_setuptools() -> str | None:
    found = metadata.version("setuptools")
    if _numbers(found)[0] < SETUPTOOLS_SERIES:
        return (
            f"it needs setuptools {SETUPTOOLS_SERIES} or newer and this is {found}. "
            "Run `pip install --upgrade 'setuptools>=77,<82'`, which every torch from 2.11 on accepts."
        )
    return None


def _check_cargo() -> str | None:
    needed = re.search(r'^rust-version = "([\d.]+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    try:
        reply = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"there is no cargo. Install Rust {needed} or newer with rustup (see rustup.rs)."
    found = re.search(r"\d+(?:\.\d+)+", reply.stdout)[0]
    if _numbers(found) < _numbers(needed):
        return f"it needs Rust {needed} and this is {found}. Run `rustup update stable` (see rustup.rs)."
    return None


def _check_compiler() -> str | None:
    compiler = os.environ.get("CXX", "g++").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C++ compiler ({compiler}). Run `apt-get install g++` as root."
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
