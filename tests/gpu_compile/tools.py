"""The compilers, and where they are looked for."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from gpu_compile.sources import ROOT

# Where `make gpu-compile` puts NVIDIA's assembler, beside what it writes; `make clean` removes both.
FOLDER = ROOT / "target" / "gpu_compile"
# The first that knows sm_90.
LEAST_CLANG = 16
# libclc's functions for NVIDIA's and AMD's GPUs.
NVIDIA_LIBRARY, AMD_LIBRARY = LIBRARIES = ("nvptx64--nvidiacl.bc", "amdgcn--amdhsa.bc")


class MissingTool(Exception):
    """A compiler is not installed; the message says how to install it."""


@dataclass(frozen=True)
class Tools:
    """Paths of the compilers.

    Attributes:
        clang: with the targets NVPTX and AMDGCN.
        libclc: the folder with the functions of OpenCL C for each target.
        ptxas: NVIDIA's assembler.
    """

    clang: Path
    libclc: Path
    ptxas: Path

    @cached_property
    def version(self) -> str:
        """The versions, in a line."""
        clang = subprocess.run([self.clang, "--version"], capture_output=True, text=True, check=True).stdout
        ptxas = subprocess.run([self.ptxas, "--version"], capture_output=True, text=True, check=True).stdout
        return f"{clang.splitlines()[0].strip()}; ptxas {ptxas.splitlines()[-2].rpartition(' ')[2]}"

    @cached_property
    def library(self) -> str:
        """A digest of libclc, whose version no tool tells."""
        paths = [self.libclc / name for name in LIBRARIES]
        return sha256(b"".join(path.read_bytes() for path in paths if path.exists())).hexdigest()


def find() -> Tools:
    """Find the compilers.

    Returns:
        The newest clang of the machine that reads its libclc, and the ptxas of the folder, of this Python or of the
        machine.

    Raises:
        MissingTool: one is not there.
    """
    libclc = next((path for path in map(Path, ("/usr/lib/clc", "/usr/share/clc")) if _has_targets(path)), None)
    if libclc is None:
        raise MissingTool("there is no libclc for NVIDIA's and AMD's GPUs. Debian: apt-get install libclc-19")
    names = [f"clang-{number}" for number in range(30, LEAST_CLANG - 1, -1)]
    present = filter(None, map(shutil.which, [os.environ.get("CLANG", ""), *names, "clang"]))
    clang = next((path for path in present if _reads(path, libclc)), None)
    if clang is None:
        raise MissingTool("there is no clang as new as libclc. Debian: apt-get install clang-19 libclc-19")
    places = [FOLDER / "nvcc", *map(Path, sys.path)]
    found = [path for place in places for path in sorted(place.glob("nvidia/*/bin/ptxas"))]
    ptxas = found[0] if found else shutil.which("ptxas")
    if ptxas is None:
        raise MissingTool(f"there is no ptxas: pip install --no-deps --target {FOLDER / 'nvcc'} nvidia-cuda-nvcc")
    return Tools(Path(clang), libclc, Path(ptxas))


def _has_targets(folder: Path) -> bool:
    return all((folder / name).exists() for name in LIBRARIES)


def _reads(clang: str, libclc: Path) -> bool:
    """Return True if a clang reads the libclc: a driver may bring an older clang than the libclc beside it."""
    target = ["-x", "cl", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-S", "-emit-llvm"]
    library = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(libclc / "amdgcn--amdhsa.bc")]
    command = [clang, *target, *library, os.devnull, "-o", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
