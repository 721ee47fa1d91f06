"""The compilers, and where to find them."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from gpu_compile.sources import ROOT

# `make gpu-compile` installs NVIDIA's assembler here, next to its output; `make clean` removes both.
FOLDER = ROOT / "target" / "gpu_compile"
# The first version that supports sm_90.
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
        nvdisasm: NVIDIA's disassembler.
        ocloc: Intel's compiler for its GPUs, if it is installed.
    """

    clang: Path
    libclc: Path
    ptxas: Path
    nvdisasm: Path
    ocloc: Path | None = None

    @property
    def ocloc_libraries(self) -> str:
        """The search path for the libraries that ocloc loads."""
        usr = self.ocloc.parents[1] if self.ocloc else Path()
        return ":".join(map(str, [*usr.glob("lib/*-linux-gnu"), *usr.glob("lib/llvm-*/lib")]))

    @cached_property
    def version(self) -> str:
        """The versions, on one line."""
        clang = subprocess.run([self.clang, "--version"], capture_output=True, text=True, check=True).stdout
        ptxas = subprocess.run([self.ptxas, "--version"], capture_output=True, text=True, check=True).stdout
        return f"{clang.splitlines()[0].strip()}; ptxas {ptxas.splitlines()[-2].rpartition(' ')[2]}"

    @cached_property
    def ocloc_version(self) -> str:
        """The version of Intel's compiler."""
        if self.ocloc is None:
            return "no ocloc"
        # The names of the packages, which have their versions.
        packages = (self.ocloc.parents[2] / "version").read_text().split()
        return next(f"ocloc {name.split('_')[1]}" for name in packages if name.startswith("intel-"))

    @cached_property
    def library(self) -> str:
        """A digest of libclc, for which no tool reports a version."""
        paths = [self.libclc / name for name in LIBRARIES]
        return sha256(b"".join(path.read_bytes() for path in paths if path.exists())).hexdigest()


def find() -> Tools:
    """Find the compilers.

    Returns:
        The newest installed clang that reads the installed libclc, and the ptxas of the folder, of this Python or of
        the system.

    Raises:
        MissingTool: one is not installed.
    """
    libclc = next((path for path in map(Path, ("/usr/lib/clc", "/usr/share/clc")) if _has_targets(path)), None)
    if libclc is None:
        raise MissingTool("no libclc for NVIDIA's and AMD's GPUs. Debian: apt-get install libclc-19")
    names = [f"clang-{number}" for number in range(30, LEAST_CLANG - 1, -1)]
    present = filter(None, map(shutil.which, [os.environ.get("CLANG", ""), *names, "clang"]))
    clang = next((path for path in present if _reads(path, libclc)), None)
    if clang is None:
        raise MissingTool("no clang that reads libclc. Debian: apt-get install clang-19 libclc-19")
    ocloc = FOLDER / "ocloc" / "usr" / "bin" / "ocloc"
    ptxas, nvdisasm = _of_nvidia("ptxas", "nvcc"), _of_nvidia("nvdisasm", "nvdisasm")
    return Tools(Path(clang), libclc, ptxas, nvdisasm, ocloc if ocloc.exists() else None)


def _of_nvidia(name: str, package: str) -> Path:
    """Find a tool of NVIDIA's in the folder, in this Python or on the system."""
    folders = [FOLDER / "nvcc", *map(Path, sys.path)]
    found = [path for folder in folders for path in sorted(folder.glob(f"nvidia/*/bin/{name}"))]
    tool = found[0] if found else shutil.which(name)
    if tool is None:
        raise MissingTool(f"no {name}: pip install --no-deps --target {FOLDER / 'nvcc'} nvidia-cuda-{package}")
    return Path(tool)


def _has_targets(folder: Path) -> bool:
    return all((folder / name).exists() for name in LIBRARIES)


def _reads(clang: str, libclc: Path) -> bool:
    """Return True if clang reads the libclc: a driver may have brought a clang that is older than the libclc."""
    target = ["-x", "cl", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-S", "-emit-llvm"]
    library = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(libclc / "amdgcn--amdhsa.bc")]
    command = [clang, *target, *library, os.devnull, "-o", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
