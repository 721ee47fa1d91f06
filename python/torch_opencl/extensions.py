"""Paths of this package's header and library, for extensions in C, C++ and Rust: docs/kernels.md."""

from pathlib import Path

from torch_opencl import _load

__all__ = ["include_paths", "library_path"]


def include_paths() -> list[str]:
    """Return the folders in which a compiler finds ``torch_opencl.h``.

    Returns:
        Paths, for ``include_dirs`` of ``torch.utils.cpp_extension``.
    """
    return [str(Path(__file__).parent / "include")]


def library_path() -> str:
    """Return the library that has the functions of ``torch_opencl.h``, built for the loaded PyTorch.

    Returns:
        A path, for ``extra_link_args`` of ``torch.utils.cpp_extension``.

    Raises:
        LibraryError: the native library could not be loaded.
    """
    _load.native()
    return str(_load.LIBRARY)
