"""Supplies missing parts of the machine: an OpenCL loader, a driver that is installed but not registered, modules."""

import ctypes
import glob
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from benchmarks.caches import CACHES, caches_in

LOADER = "libOpenCL.so.1"
NVIDIA = "libnvidia-opencl.so.1"
REGISTRY = Path("/etc/OpenCL/vendors")
# Folders of NVIDIA's driver besides the linker's search path; containers mount it in the first.
NVIDIA_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")
# Variables with which a user sets the location of drivers.
CHOICES = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH")
# The folders of vendor/, and the modules that each one supplies if the machine lacks them.
VENDORED = {"yaml": ["yaml"], "expecttest": ["expecttest"], "tqdm": ["tqdm"]}
# The folder of pytest is always used, because the kit's plugin is for this version. The second folder has pytest's
# requirements for Python 3.10.
PYTEST, BEFORE_3_11 = "pytest", "python3.10"
# Variables that change the behaviour of any pytest.
PYTEST_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
# Modules that some tests import, and that a kit cannot contain for all Python versions.
COMPILED = ("numpy", "scipy")


def prepare(
    root: Path, work: Path, device: int | None, environment: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the variables of all processes, and notes about them.

    Args:
        root: the kit's folder.
        work: the folder for caches.
        device: the device that becomes opencl:0; None for the first one.
        environment: the variables of this process.

    Returns:
        The variables, and a sentence about each change.
    """
    variables = {name: value for name, value in environment.items() if name not in PYTEST_VARIABLES}
    # By default the tests use our own kernels for matmuls, which is repeatable. The kit tests what users get.
    variables.setdefault("TORCH_OPENCL_BLAS", "auto")
    notes = []
    lacking = [name for name, modules in VENDORED.items() if not all(map(_has, modules))]
    folders = [PYTEST, *([BEFORE_3_11] if sys.version_info < (3, 11) else []), *lacking]
    paths = [root / "python", root, *(root / "vendor" / name for name in folders)]
    variables["PYTHONPATH"] = os.pathsep.join([*map(str, paths), *filter(None, [environment.get("PYTHONPATH")])])
    if lacking:
        notes.append(f"Python has no {', '.join(lacking)}: the kit's is used.")
    if names := " and no ".join(missing()):
        notes.append(f"Python has no {names}: tests that need it are left out (without numpy, most tests).")
    ours = [name for name in sorted(environment) if name.startswith("TORCH_OPENCL_") and name not in CACHES]
    if ours:
        notes.append(f"Set by the user: {', '.join(f'{name}={environment[name]}' for name in ours)}.")
    if not _loads(LOADER):
        _prepend(variables, "LD_LIBRARY_PATH", root / "lib")
        notes.append(f"The machine has no {LOADER}: the kit's is used (ocl-icd).")
    if not any(REGISTRY.glob("*.icd")) and not any(map(environment.get, CHOICES)):
        notes += _use_nvidia(variables)
    # Separate from the user's caches: a new run compiles everything, as for a new user.
    variables |= caches_in(work / "caches")
    variables.setdefault("OMP_WAIT_POLICY", "passive")
    variables["PYTHONUNBUFFERED"] = "1"
    if device is not None:
        variables["TORCH_OPENCL_DEVICES"] = str(device)
    return variables, notes


def complaint_about_torch(wanted: str) -> str | None:
    """Return why this Python's torch cannot be used for the check, without importing it.

    Args:
        wanted: the version that the kit was made for; any of its patch releases works.

    Returns:
        The problem and its fix; None without a problem.
    """
    release = _release(wanted)
    cure = f"pip install 'torch=={release}.*', or make the kit for another torch: make gpu-kit TORCH=..."
    if importlib.util.find_spec("torch") is None:
        return f"this kit is for torch {release}, and {sys.executable} has no torch: {cure}"
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        # torch may be built in place and not installed; the native library then checks whether it fits.
        return None
    if found is None or _release(found) == release:
        return None
    return f"this kit is for torch {release}, and {sys.executable} has torch {found}: {cure}"


def _release(version: str) -> str:
    """Return the minor release of a version, which decides whether a library fits."""
    return ".".join(version.split(".")[:2])


def missing() -> list[str]:
    """Return which of :data:`COMPILED` the machine lacks."""
    return [name for name in COMPILED if not _has(name)]


def _use_nvidia(variables: dict[str, str]) -> Iterator[str]:
    """Point the OpenCL loaders to NVIDIA's driver, if it is on the machine."""
    library = NVIDIA if _loads(NVIDIA) else None
    if library is None:
        found = (path for folder in NVIDIA_FOLDERS for path in glob.glob(f"{folder}/libnvidia-opencl.so*"))
        library = next(filter(_loads, found), None)
    if library is None:
        return
    # Libraries that it is linked with are in its folder.
    if os.path.dirname(library):
        _append(variables, "LD_LIBRARY_PATH", os.path.dirname(library))
    # The first is read by ocl-icd, the second by the Khronos loader.
    variables["OCL_ICD_VENDORS"] = variables["OCL_ICD_FILENAMES"] = library
    yield f"No OpenCL driver is registered: {library} is used (OCL_ICD_VENDORS)."


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _prepend(variables: dict[str, str], name: str, path: object) -> None:
    variables[name] = os.pathsep.join([str(path), *filter(None, [variables.get(name)])])


def _append(variables: dict[str, str], name: str, path: object) -> None:
    variables[name] = os.pathsep.join([*filter(None, [variables.get(name)]), str(path)])
