"""Compiles C++ for tests that load it, or put it before the loader of OpenCL."""

import shutil
import subprocess
from pathlib import Path

import pytest

OPENCL = "libOpenCL.so.1"


def need_headers() -> None:
    """Skip the test where there are no headers of OpenCL, which `make setup` leaves out: only extensions need them."""
    probe = ["g++", "-x", "c++", "-include", "CL/cl.h", "-fsyntax-only", "/dev/null"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("there are no headers of OpenCL (Debian: opencl-c-headers)")


def shared_library(folder: Path, source: str, *flags: str) -> Path:
    """Compile a shared library that is linked with the loader of OpenCL.

    Args:
        folder: where it is written.
        source: C++.
        flags: further arguments of the compiler.

    Returns:
        Its path. Skips the test where there is no compiler, as in roots of scripts/driver.sh, and where the source
        includes headers of OpenCL that are not there.
    """
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler, as in the roots that scripts/driver.sh makes")
    if "CL/cl.h" in source:
        need_headers()
    text, library = folder / "library.cpp", folder / "library.so"
    text.write_text(source)
    command = ["g++", "-Wall", "-Werror", "-std=c++17", "-shared", "-fPIC", text, *flags]
    subprocess.run([*command, "-Wl,--no-as-needed", f"-l:{OPENCL}", "-o", library], check=True)
    return library
