"""What the back end has been doing: CPU fallbacks, kernel launches, compiled kernels."""

import json

from torch_opencl._load import native

__all__ = ["fallbacks", "kernel_cache_info", "launches", "reset_fallbacks"]


def fallbacks() -> dict[str, int]:
    """Return which operators ran on the CPU because the back end has no kernel for them.

    ``TORCH_OPENCL_FALLBACK=error`` turns a fallback into an error.

    Returns:
        How often each operator fell back, by its name, since the start or :func:`reset_fallbacks`.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return json.loads(native().fallbacks())


def reset_fallbacks() -> None:
    """Forget the fallbacks counted so far.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    native().reset_fallbacks()


def launches() -> int:
    """Return how many kernels this process has enqueued.

    Returns:
        The number of kernels.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return native().launches()


def kernel_cache_info() -> dict[str, str | int | None]:
    """Return where compiled kernels are kept, and how this process came by those that it uses.

    Returns:
        ``path`` of the folder (None where nothing is kept on disk), ``entries`` and ``bytes`` in it;
        how many programs were ``compiled`` and how many ``loaded`` from the folder, and the ``hits`` of
        those that were in memory; how many of both were ``specialized`` for an operator and its dtypes, how
        many of these are ``pending`` in the background and how many have ``failed``; and what
        ``TORCH_OPENCL_SPECIALIZE`` says, ``specialize``.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return json.loads(native().kernel_cache_info())
