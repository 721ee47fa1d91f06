"""Compiles C++ for tests that load it, or wrap the OpenCL loader with it."""

import shutil
import subprocess
from pathlib import Path

import pytest

OPENCL = "libOpenCL.so.1"


def need_headers() -> None:
    """Skip the test if the OpenCL headers are missing: `make setup` omits them, as only extensions need them."""
    probe = ["g++", "-x", "c++", "-include", "CL/cl.h", "-fsyntax-only", "/dev/null"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no OpenCL headers (Debian: opencl-c-headers)")


def shared_library(folder: Path, source: str, *flags: str) -> Path:
    """Compile a shared library that is linked with the OpenCL loader.

    Args:
        folder: where it is written.
        source: C++ source.
        flags: further arguments of the compiler.

    Returns:
        Its path. Skips the test without a compiler, as in roots of scripts/driver.sh, and without OpenCL headers if the
        source includes them.
    """
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler, as in the roots that scripts/driver.sh creates")
    if "CL/cl.h" in source:
        need_headers()
    text, library = folder / "library.cpp", folder / "library.so"
    text.write_text(source)
    command = ["g++", "-Wall", "-Werror", "-std=c++17", "-shared", "-fPIC", text, *flags]
    subprocess.run([*command, "-Wl,--no-as-needed", f"-l:{OPENCL}", "-o", library], check=True)
    return library
