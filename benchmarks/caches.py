"""The caches of compiled kernels."""

import os
from pathlib import Path

# Variables for the cache folders of the backend, and of drivers with their own caches.
CACHES = ("TORCH_OPENCL_CACHE_DIR", "POCL_CACHE_DIR", "NEO_CACHE_DIR", "CUDA_CACHE_PATH", "MESA_SHADER_CACHE_DIR")
CACHES += ("AMD_COMGR_CACHE_DIR",)


def caches_in(folder: Path) -> dict[str, str]:
    """Make a folder for each cache, and return the variables that move the caches there.

    Args:
        folder: the parent folder. Only this user may read the caches, because programs are loaded from them.
    """
    where = {variable: str(folder / variable) for variable in CACHES}
    for path in where.values():
        os.makedirs(path, mode=0o700, exist_ok=True)
    return where
