"""Uses the OpenCL runtime that pip can install, on a machine that has no OpenCL driver.

Intel's CPU runtime (``pip install intel-opencl-rt intel-cmplr-lib-rt``) runs on any
x86-64 processor, so it serves users who cannot install system packages. Its wheel does not register the driver:
its .icd file holds a placeholder path. The OpenCL loader is therefore pointed at the library itself.
"""

import ctypes
import os
from importlib import metadata
from pathlib import Path

LOADER = "libOpenCL.so.1"
REGISTRY = Path("/etc/OpenCL/vendors")
_LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH")
# Libraries that the loader in Intel's wheel is linked with and has no search path for, in load order.
_LOADER_NEEDS = ("libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so")


def activate() -> Path | None:
    """Register Intel's CPU runtime for this process if it is installed and no other driver is.

    Must run before the OpenCL loader is opened. Does nothing if a driver is registered
    (``/etc/OpenCL/vendors/*.icd``) or the user has pointed the loader somewhere.

    Returns:
        The runtime's library if this process now uses it, else None.
    """
    if any(REGISTRY.glob("*.icd")):
        return None
    library = installed_library()
    if library is None or _is_user_choice(library) or not _ensure_loader(library.parent):
        return None
    # The first is read by ocl-icd (Debian, Ubuntu), the second by the Khronos loader.
    os.environ["OCL_ICD_VENDORS"] = str(library)
    os.environ["OCL_ICD_FILENAMES"] = str(library)
    return library


def has_driver() -> bool:
    """Return whether an OpenCL driver is registered on this machine or chosen by the environment.

    Returns:
        True if the OpenCL loader would find a driver to try.
    """
    return any(map(os.environ.get, _LOADER_VARIABLES)) or any(REGISTRY.glob("*.icd"))


def choice_of_the_user() -> str | None:
    """Describe the variables that point the OpenCL loader somewhere, so that it ignores registered drivers.

    Returns:
        A sentence that names the variables and their values, or None if there are none.
    """
    library = str(installed_library())
    chosen = {name: os.environ[name] for name in _LOADER_VARIABLES if os.environ.get(name, library) != library}
    if not chosen:
        return None
    settings = " and ".join(f"{name}={value}" for name, value in chosen.items())
    return f"The environment has {settings}: the loader looks there for drivers, not in {REGISTRY}."


def installed_library() -> Path | None:
    """Return the library of a pip-installed Intel CPU runtime.

    Returns:
        The path of ``libintelocl.so``, or None if ``intel-opencl-rt`` is not installed.
    """
    try:
        files = metadata.files("intel-opencl-rt") or []
    except metadata.PackageNotFoundError:
        return None
    libraries = (Path(file.locate()).resolve() for file in files if file.name == "libintelocl.so")
    return next(filter(Path.is_file, libraries), None)


def _is_user_choice(library: Path) -> bool:
    """Return whether the user points the loader elsewhere; a child process inherits the choice made here."""
    return any(os.environ.get(variable, str(library)) != str(library) for variable in _LOADER_VARIABLES)


def _ensure_loader(directory: Path) -> bool:
    """Load the system's OpenCL loader, else the one in Intel's wheel; return whether there is one.

    The native library opens the loader by name, which gives it the one loaded here.
    """
    try:
        ctypes.CDLL(LOADER)
        return True
    except OSError:
        pass
    try:
        for name in (*_LOADER_NEEDS, LOADER):
            ctypes.CDLL(str(directory / name), ctypes.RTLD_GLOBAL)
        return True
    except OSError:
        return False
