"""``torch.backends.opencl``: how operators are computed, with the names of ``torch.backends.cuda``."""

import json as _json
from typing import Any as _Any

from torch_opencl._lazy import is_available as _is_available
from torch_opencl._load import LibraryError as _LibraryError, native as _native
from torch_opencl._utils import DeviceLike as _DeviceLike, _get_device_index

__all__ = [
    "blas_choices",
    "blas_obstacles",
    "is_available",
    "is_built",
    "matrix_instructions",
    "preferred_blas_library",
    "small_calls",
]


def is_built() -> bool:
    """Return whether the native library can be loaded, as it is built for this release of PyTorch.

    Returns:
        True if it can; there may be no device.
    """
    try:
        _native()
    except _LibraryError:
        return False
    return True


def is_available() -> bool:
    """Return whether there is an OpenCL device to use. Never raises.

    Returns:
        As :func:`torch.opencl.is_available`.
    """
    return _is_available()


def preferred_blas_library(backend: str | None = None) -> str:
    """Choose the library that computes matmuls in this process, or return the current choice.

    * ``"auto"`` (the default): the fastest. The first large matmul of each dtype and class of size is
      measured, and the result is kept with the compiled kernels.
    * ``"opencl"``: this package's own kernels, which compute every matmul.
    * ``"host"``: PyTorch's CPU matmul (MKL, oneDNN), on devices that share memory with the host.
    * ``"cublas"``: NVIDIA's, on NVIDIA devices whose OpenCL driver shares memory with CUDA; nothing is copied.

    A matmul that the library lacks (for example of integers) is computed by ``"opencl"``. The environment
    variable ``TORCH_OPENCL_BLAS`` sets the initial choice; with ``opencl`` or ``host`` there, the process makes no
    CUDA context, and cannot choose ``"cublas"`` later.

    Args:
        backend: one of the four, or None to change nothing.

    Returns:
        The name of the preferred library.

    Raises:
        RuntimeError: there is no library of that name, or the current device cannot use it; the message
            says why.
    """
    if backend is not None:
        _native().set_preferred_blas_library(backend)
    return _native().preferred_blas_library()


def small_calls(choice: str | None = None) -> str:
    """Choose how calls with few elements run on CPU devices in this process, or return the current choice.

    * ``"host"`` (the default): ATen's CPU kernels run on the device's memory, if host and device share it and the
      current stream is idle: enqueueing a kernel takes longer than such a call. While work is pending, calls are
      enqueued as usual. No kernel is compiled for calls that the host computes, and a profiler shows none.
    * ``"kernels"``: this package's kernels compute every call, as on GPUs.

    The environment variable ``TORCH_OPENCL_SMALL_CALLS`` sets the initial choice.

    Args:
        choice: one of the two, or None to change nothing.

    Returns:
        The choice.

    Raises:
        RuntimeError: ``choice`` is neither.
    """
    if choice is not None:
        _native().set_small_calls(choice)
    return _native().small_calls()


def blas_choices(device: _DeviceLike = None) -> dict[str, str]:
    """Return what ``"auto"`` has chosen in this process so far.

    Args:
        device: the device; the current one by default.

    Returns:
        A dictionary from each class of matmuls so far (dtype, the least batch size, m, n and k of the class,
        and the host's threads) to the library's name.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return _json.loads(_native().blas_choices(_get_device_index(device, optional=True)))


def blas_obstacles(device: _DeviceLike = None) -> dict[str, str]:
    """Return why libraries for matmuls cannot be used on a device.

    Args:
        device: the device; the current one by default.

    Returns:
        A dictionary from the name of each library that cannot be used to the reason.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return _json.loads(_native().blas_obstacles(_get_device_index(device, optional=True)))


def matrix_instructions(device: _DeviceLike = None) -> dict[str, _Any]:
    """Return the matrix instructions, or instructions for sums of products, that matmuls use on a device.

    A kind is for some dtypes. "tfloat32" is float32, if PyTorch's settings allow TensorFloat-32:
    ``torch.set_float32_matmul_precision("high")``. Attention in float16 and bfloat16 uses all kinds but "dot".

    Args:
        device: the device; the current one by default.

    Returns:
        ``kinds``: their names in ``TORCH_OPENCL_MATRIX`` by dtype ("float16", "bfloat16", "tfloat32", "int8"), empty if
        the device has none that kernels use; ``emulated``; and of this process ``used`` and ``refused``: how many forms
        of the kernel gave right results in a check before their first use, and how many did not, or did not compile.
        The latter are not used.

    Raises:
        LibraryError: the native library cannot be loaded.
        RuntimeError: ``TORCH_OPENCL_MATRIX`` has a wrong value.
    """
    return _json.loads(_native().matrix_instructions(_get_device_index(device, optional=True)))
