"""Finds, checks and loads the native library, once per process.

Loading never raises: `import torch` must still work with a broken installation. The error is kept, a warning
shows it once, and the first call that needs the library raises it.
"""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import torch

from torch_opencl import _batching, _embedded_driver, _interrupts, _printing, _settings, _sharing, composites, quantized

BACKEND_NAME = "opencl"
# A library serves one minor release of PyTorch and all its patch releases: C++ has no stable ABI. A wheel for
# all releases has all libraries, one for a single release has one, and a checkout has as many as were built.
RELEASE = ".".join(torch.__version__.split(".")[:2])
LIBRARIES = Path(__file__).parent / "lib"
LIBRARY = LIBRARIES / RELEASE / "libtorch_opencl.so"
BUILD_INFO = LIBRARY.parent / "build_info.json"
_REINSTALL = f"Reinstall torch-opencl-rs for this torch ({torch.__version__})."

_error: str | None = "torch_opencl has not been loaded yet."


class LibraryError(RuntimeError):
    """The native library is missing, broken, or built for another PyTorch."""


def load(module: ModuleType) -> None:
    """Load the native library and make ``module`` known to PyTorch as ``torch.opencl``.

    A failure is kept for :func:`error` and :func:`native`, and a warning shows it once.

    Args:
        module: the package that becomes ``torch.opencl``.
    """
    global _error
    _settings.warn_about_environment()
    try:
        _register_settings()
        _check()
        _embedded_driver.activate()
        torch.ops.load_library(str(LIBRARY))
        torch.utils.rename_privateuse1_backend(BACKEND_NAME)
        torch._register_device_module(BACKEND_NAME, module)
        torch.utils.generate_methods_for_privateuse1_backend(
            for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
        )
        _sharing.register()
        _printing.install()
        _batching.register()
        composites.register()
        quantized.register()
        _interrupts.install(torch.ops.torch_opencl)
        _error = None
    except Exception as failure:
        cause = f"{failure.__cause__ or failure}. {_REINSTALL}"
        _error = str(failure) if isinstance(failure, LibraryError) else cause
        # `torch.opencl.is_available()` must return False rather than be missing. The device is not renamed to "opencl":
        # PyTorch would send work of the CPU (a gloo barrier, a profiler's end) to a missing device.
        if not hasattr(torch, BACKEND_NAME):
            torch._register_device_module(BACKEND_NAME, module)
        _settings.warn_once("installation", f"torch.device('opencl') is not available: {_error}")


def error() -> str | None:
    """Return why the native library could not be loaded, or None if it was.

    Returns:
        One or two sentences that name the cause and the fix.
    """
    return _error


def native():
    """Return the native library's operators, ``torch.ops.torch_opencl``.

    Returns:
        The operator namespace.

    Raises:
        LibraryError: the library could not be loaded; the message says why.
    """
    if _error is not None:
        raise LibraryError(_error)
    return torch.ops.torch_opencl


def build_info() -> dict[str, str]:
    """Return what the native library was built with.

    Returns:
        The keys ``version`` (of this package) and ``torch`` (the PyTorch it was built against).

    Raises:
        LibraryError: the library has not been built, or its description cannot be read.
    """
    if not LIBRARY.is_file():
        if others := sorted((path.parent.name for path in LIBRARIES.glob(f"*/{LIBRARY.name}")), key=_numbers):
            raise _built_for(" and ".join(others), others[-1])
        raise LibraryError(
            f"the native library {LIBRARY} does not exist. Build it: run `make build`, or "
            "`pip install --no-build-isolation .`, in the source tree of torch-opencl-rs."
        )
    try:
        return json.loads(BUILD_INFO.read_text())
    except (OSError, ValueError) as failure:
        raise LibraryError(f"{BUILD_INFO} cannot be read ({failure}). Reinstall torch-opencl-rs.") from failure


def _numbers(release: str) -> list[int]:
    """Return a release as integers, so that 2.11 sorts after 2.9."""
    return [int(number) for number in release.split(".") if number.isdigit()]


def _register_settings() -> None:
    """Make ``torch.backends.opencl`` known, as ``torch.backends.cuda`` is."""
    settings = importlib.import_module("torch_opencl.backends")
    sys.modules[f"torch.backends.{BACKEND_NAME}"] = settings
    setattr(torch.backends, BACKEND_NAME, settings)


def _check() -> None:
    version = build_info().get("torch", "an unknown version")
    release = ".".join(version.split(".")[:2])
    if release != RELEASE:
        raise _built_for(version, release)
    owner = torch._C._get_privateuse1_backend_name()
    if owner not in ("privateuseone", BACKEND_NAME):
        raise LibraryError(
            f"PyTorch has room for one out-of-tree backend, and '{owner}' has taken it. Uninstall "
            "one of the two, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want."
        )


def _built_for(versions: str, release: str) -> LibraryError:
    return LibraryError(
        f"torch-opencl-rs was built for torch {versions}, and this is torch {torch.__version__}. "
        "Run `pip install --no-build-isolation .` with this Python in the source tree of torch-opencl-rs, which builds "
        f"it for this torch, or `pip install torch=={release}.*`."
    )
