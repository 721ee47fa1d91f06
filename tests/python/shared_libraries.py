"""Compiles C++ for tests that load it, or put it before the loader of OpenCL."""

import shutil
import subprocess
from pathlib import Path

import pytest

OPENCL = "libOpenCL.so.1"


def shared_library(folder: Path, source: str, *flags: str) -> Path:
    """Compile a shared library that is linked with the loader of OpenCL.

    Args:
        folder: where it is written.
        source: C++.
        flags: further arguments of the compiler.

    Returns:
        Its path. Skips the test where there is no compiler: scripts/driver.sh runs some drivers in a root without one.
    """
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler, as in the roots that scripts/driver.sh makes")
    text, library = folder / "library.cpp", folder / "library.so"
    text.write_text(source)
    command = ["g++", "-Wall", "-Werror", "-std=c++17", "-shared", "-fPIC", text, *flags]
    subprocess.run([*command, "-Wl,--no-as-needed", f"-l:{OPENCL}", "-o", library], check=True)
    return library
