"""What a build needs, and the one sentence that says what to install where it is missing."""

import importlib.util
import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH_VERSION = "2.13.0"
# The first that reads licence expressions.
SETUPTOOLS_SERIES = 77


def check_toolchain() -> None:
    """Leave with a sentence unless what a build needs is there, in versions that work.

    Raises:
        SystemExit: something is missing; the message says what to install.
    """
    for check in (_check_torch, _check_setuptools, _check_cargo, _check_compiler):
        problem = check()
        if problem is not None:
            raise SystemExit(f"torch-opencl-rs cannot be built: {problem}")


def torch_version() -> str:
    """Return the version of the PyTorch to build against, without its local part.

    Returns:
        A version such as "2.13.0".
    """
    return metadata.version("torch").split("+")[0]


def _check_torch() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return (
            f"there is no PyTorch in this Python. Run `pip install torch=={TORCH_VERSION}`, and build "
            "with `pip install --no-build-isolation`, which lets the build see it."
        )
    if torch_version() != TORCH_VERSION:
        return (
            f"it needs torch {TORCH_VERSION} and this Python has {torch_version()}. "
            f"Run `pip install torch=={TORCH_VERSION}`."
        )
    return None


def _check_setuptools() -> str | None:
    found = metadata.version("setuptools")
    if _numbers(found)[0] < SETUPTOOLS_SERIES:
        return (
            f"it needs setuptools {SETUPTOOLS_SERIES} or newer and this is {found}. "
            "Run `pip install --upgrade setuptools`."
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
