"""Where compiled kernels are kept."""

import os
from pathlib import Path

# Of the backend, and of drivers that keep compiled kernels of their own.
CACHES = ("TORCH_OPENCL_CACHE_DIR", "POCL_CACHE_DIR", "NEO_CACHE_DIR", "CUDA_CACHE_PATH", "MESA_SHADER_CACHE_DIR")
CACHES += ("AMD_COMGR_CACHE_DIR",)


def caches_in(folder: Path) -> dict[str, str]:
    """Make a folder for each cache, and return the variables that move the caches there.

    Args:
        folder: where the folders go. Only this user may read them, as programs are loaded from them.
    """
    where = {variable: str(folder / variable) for variable in CACHES}
    for path in where.values():
        os.makedirs(path, mode=0o700, exist_ok=True)
    return where
