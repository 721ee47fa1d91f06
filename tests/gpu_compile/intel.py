"""Intel's GPUs: Intel's compiler for them, which needs no GPU."""

import os
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from gpu_compile.figures import CompileError, Figures, run
from gpu_compile.programs import Program
from gpu_compile.tools import Tools

# Threads of an execution unit.
THREADS = 8
# With more registers each, half as many threads fit.
FEW_REGISTERS = 128
# The backend's option for GPUs of Intel's with more than 4 GiB.
LARGE_BUFFERS = "-cl-intel-greater-than-4GB-buffer-required"
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
        if not self.has_double and needs_double(program):
            return {}
        options = program.options if self.has_double else program.options.replace("-D HAS_FP64", "")
        options += f" {LARGE_BUFFERS}"
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


def needs_double(program: Program) -> bool:
    """Tell whether a program is only for devices with float64: another one has other generated kernels."""
    words = program.options.split()
    return "CLASS_D" in words or "CLASS_Z" in words or (program.family == "generated" and program.computes_double)


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
        # Scratch memory is counted by thread of the hardware, which runs one work-item a lane, other memory by item.
        sizes = [(each["usage"], each["size"] // (lanes if each["type"] == "scratch" else 1)) for each in memory]
        scratch = sum(size for _, size in sizes)
        # The single space of a kernel with one such buffer may also hold arrays.
        spills = sum(size for usage, size in sizes if usage in ("spill_fill_space", "single_space"))
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
