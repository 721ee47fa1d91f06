"""What compilers report of a kernel, and their errors."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Time limit in seconds for a compiler: some take very long for loops that they unroll.
PATIENCE = 600


class CompileError(Exception):
    """A program does not compile, or calls undefined functions."""


class TooSlow(CompileError):
    """A compiler exceeded the time limit, possibly because the machine is busy."""


@dataclass
class Figures:
    """Resources that a kernel needs on a target.

    Attributes:
        registers: registers of a work-item; vector registers on AMD.
        spills: bytes of spilled registers of a work-item.
        scratch: bytes of private memory of a work-item, spills included.
        local: bytes of local memory of a group that the kernel declares.
        waves: resident waves per SIMD unit, if the compiler reports it; None if the launch decides.
        vector_loads: loads of 8 and 16 bytes from global memory in its code.
        loads: all loads from global memory.
        matrix_share: share of matrix instructions in the loop that has them; 0 without such a loop.
        loop: instructions of one pass of the inner loop that multiplies, for kernels of quantised weights.
        lanes: work-items that a thread of the hardware runs at once, if the compiler chooses.
    """

    registers: int
    spills: int
    scratch: int
    local: int
    waves: int | None
    vector_loads: int
    loads: int
    matrix_share: float = 0.0
    loop: int = 0
    lanes: int | None = None


def run(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> str:
    """Run a compiler; return its output."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise TooSlow(f"no result after {PATIENCE} s") from error
    text = done.stderr + done.stdout
    if done.returncode:
        raise CompileError(text.strip())
    return text
