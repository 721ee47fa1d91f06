"""Intel's GPUs: Intel's compiler for them, which needs no GPU."""

import os
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from gpu_compile.figures import CompileError, Figures, run
from gpu_compile.programs import Program
from gpu_compile.tools import Tools

# Threads of an execution unit with 128 registers each; with 256 there are half as many.
THREADS = 8
# Bytes of a register. Later devices have 64, and a compiler reports as many registers.
FEW_REGISTERS = 128
# The section of the binary that describes its kernels, as YAML.
SECTION = b".ze_info"


class Intel:
    """An Intel GPU by the name that ocloc has for it.

    Args:
        name: such as "skl" or "acm-g10".
        has_double: whether it computes float64.
    """

    def __init__(self, name: str, *, has_double: bool) -> None:
        self.name = name
        self.has_double = has_double

    def compile(self, program: Program, tools: Tools) -> dict[str, Figures]:
        """Compile a program: as `Nvidia.compile`, but a program for float64 has no kernels on a GPU without it."""
        assert tools.ocloc is not None
        if not self.has_double and any(word in program.options.split() for word in ("CLASS_D", "CLASS_Z")):
            return {}
        options = program.options if self.has_double else program.options.replace("-D HAS_FP64", "")
        with TemporaryDirectory() as name:
            folder = Path(name)
            source, words = folder / "program.cl", ["--format", "zebin", "-output", "program", "-out_dir", folder]
            source.write_text(program.source)
            said = run(
                [tools.ocloc, "compile", "-file", source, "-device", self.name, "-options", options, *words],
                {**os.environ, "LD_LIBRARY_PATH": tools.ocloc_libraries},
            )
            found = next(folder.glob("program_*.bin"), None)
            if found is None:
                raise CompileError(f"no binary: {said.strip()}")
            return intel_figures(found.read_bytes())


def intel_figures(binary: bytes) -> dict[str, Figures]:
    """Read each kernel's figures from a binary.

    Args:
        binary: an ELF file with Intel's section `.ze_info`.

    Returns:
        The figures by kernel. Loads are not counted.
    """
    figures = {}
    for kernel in yaml.safe_load(_section(binary))["kernels"]:
        environment = kernel["execution_env"]
        memory = kernel.get("per_thread_memory_buffers", ())
        lanes = environment["simd_size"]
        # The sizes are of a thread of the hardware, which runs one work-item a lane.
        scratch = sum(buffer["size"] for buffer in memory if buffer["type"] == "scratch") // lanes
        spills = sum(buffer["size"] for buffer in memory if buffer["usage"] == "spill_fill_space") // lanes
        registers = environment["grf_count"]
        figures[kernel["name"]] = Figures(
            registers=registers,
            spills=spills,
            scratch=scratch,
            local=environment.get("slm_size", 0),
            waves=THREADS if registers <= FEW_REGISTERS else THREADS // 2,
            vector_loads=0,
            loads=0,
            lanes=lanes,
        )
    return figures


def _section(binary: bytes) -> str:
    """Return the text of the section that describes kernels."""
    start, size, count, names = struct.unpack_from("<Q10x3H", binary, 40)
    headers = [struct.unpack_from("<I20xQQ", binary, start + size * index) for index in range(count)]
    strings = headers[names][1]
    for name, offset, length in headers:
        if binary[strings + name :].startswith(SECTION + b"\0"):
            return binary[offset : offset + length].decode()
    raise CompileError(f"no section {SECTION.decode()}")
