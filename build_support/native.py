"""Builds the native library and copies it into the package, next to a description of the build.

Run by the build backend, and by ``make build`` as ``python -m build_support.native``.
"""

import filecmp
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from build_support.checks import ROOT, check_toolchain, torch_release, torch_version
from build_support.progress import run_cargo

LIBRARY = "libtorch_opencl.so"
# A Python extension module with the stable ABI: launches of generated kernels.
EXTENSION = "libtorch_opencl_launch.so"
# Endings of the files that are compiled.
SOURCES = {".rs", ".cl", ".cpp", ".h", ".toml"}


def build() -> None:
    """Compile the native library against this Python's PyTorch and copy it into the package.

    Raises:
        SystemExit: a tool is missing, or the compilation failed.
    """
    check_toolchain()
    built = compile_library()
    library = package_folder() / LIBRARY
    library.parent.mkdir(parents=True, exist_ok=True)
    _put(built, library)
    _put(built.parent / EXTENSION, library.parent / "_launch.abi3.so")
    info = {"version": package_version(), "torch": torch_version(), "sources": sources_hash()}
    (library.parent / "build_info.json").write_text(json.dumps(info) + "\n")


def is_current(release: str) -> bool:
    """Return whether the package's library for a release of PyTorch was built from these sources.

    Args:
        release: a minor version such as "2.13".

    Returns:
        False too if there is no such library.
    """
    try:
        info = json.loads((package_folder(release) / "build_info.json").read_text())
    except (OSError, ValueError):
        return False
    return info.get("sources") == sources_hash()


def sources_hash() -> str:
    """Return a hash of the files from which the native library is built.

    Returns:
        64 hexadecimal digits.
    """
    files = [ROOT / name for name in ("Cargo.lock", "Cargo.toml", "build.rs", "native_functions.yaml")]
    for folder in ("rust", "cpp", "python/launch", "build_support"):
        files += sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES)
    digest = hashlib.sha256()
    for path in files:
        if path.is_file():
            digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _put(built: Path, target: Path) -> None:
    """Copy a library into the package, if it has changed."""
    if not target.exists() or not filecmp.cmp(built, target):
        # Renamed into place, so that a process that has mapped the old library keeps it intact.
        fresh = target.with_suffix(".tmp")
        shutil.copyfile(built, fresh)
        os.replace(fresh, target)


def package_folder(release: str | None = None) -> Path:
    """Return the package's folder for the library for a release of PyTorch.

    Args:
        release: a minor version such as "2.13"; that of this Python's PyTorch by default.

    Returns:
        A folder, which need not exist.
    """
    return ROOT / "python" / "torch_opencl" / "lib" / (release or torch_release())


def package_version() -> str:
    """Return the version of this package, from Cargo.toml.

    Returns:
        A version such as "0.1.0".
    """
    return re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]


def cargo_environment() -> dict[str, str]:
    """Return the environment in which cargo builds against this Python's PyTorch.

    Returns:
        A copy of this process's environment with the changes.
    """
    environment = dict(os.environ)
    # build.rs asks this Python for torch's location, and runs again if another Python is set.
    environment["TORCH_OPENCL_PYTHON"] = sys.executable
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    if sys.prefix == sys.base_prefix:
        environment.pop("VIRTUAL_ENV", None)
    else:
        environment["VIRTUAL_ENV"] = sys.prefix
    return environment


def compile_library(variables: Mapping[str, str] | None = None) -> Path:
    """Compile the native library.

    Args:
        variables: added to this process's environment variables.

    Returns:
        The path of the library in cargo's target folder.

    Raises:
        SystemExit: the compilation failed.
    """
    environment = cargo_environment() | (variables or {})
    packages = ["--package", "torch-opencl", "--package", "torch-opencl-launch"]
    command = ["cargo", "build", "--release", *packages, "--message-format=json-render-diagnostics"]
    target = Path(environment.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    messages = [json.loads(line) for line in run_cargo(command, environment, target).splitlines()]
    files = (Path(file) for message in messages for file in message.get("filenames", ()))
    built = next(file for file in files if file.name == LIBRARY)
    # Copies of the kernels for tools, and of the operator table for `make docs`: the name of cargo's folder changes.
    folders = (Path(message["out_dir"]) for message in messages if "out_dir" in message)
    generated = next(folder for folder in folders if (folder / "cl").exists())
    shutil.copyfile(generated / "coverage.md", built.parent / "coverage.md")
    kernels = generated / "cl"
    target, fresh = built.parent / "kernels", built.parent / "kernels.tmp"
    for folder in (fresh, target):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kernels, fresh).rename(target)
    return built


if __name__ == "__main__":
    build()
