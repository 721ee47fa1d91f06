"""The GPUs that programs are compiled for, and the compilers' reports on each kernel."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu_compile import quantized
from gpu_compile.figures import CompileError, Figures, run
from gpu_compile.intel import Intel
from gpu_compile.loops import matrix_share, multiplying_loop
from gpu_compile.programs import Program
from gpu_compile.tools import AMD_LIBRARY, NVIDIA_LIBRARY, Tools


def _clang(tools: Tools, program: Program, triple: str, library: str, folder: Path, *options: str) -> Path:
    source, out = folder / "program.cl", folder / "program.s"
    source.write_text(program.source)
    # Without this, double is an error, as it is on a device without fp64.
    extensions = [] if program.computes_double else ["-Xclang", "-cl-ext=-cl_khr_fp64"]
    linked = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(tools.libclc / library)]
    # If a loop marked for unrolling is not unrolled, its arrays stay in memory.
    strict = ["-Wno-everything", "-Werror=pass-failed", "-ferror-limit=5"]
    written = [*program.clang_options, "-S", source, "-o", out]
    run([tools.clang, "-x", "cl", "-target", triple, *options, "-O3", *strict, *extensions, *linked, *written])
    return out


class Nvidia:
    """An NVIDIA GPU by its compute capability: clang's NVPTX, then NVIDIA's own assembler.

    Args:
        name: such as "sm_90".
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def compile(self, program: Program, tools: Tools) -> dict[str, Figures]:
        """Compile a program.

        Args:
            program: what to compile.
            tools: the compilers.

        Returns:
            The figures of each kernel.

        Raises:
            CompileError: it does not compile.
        """
        with TemporaryDirectory() as name:
            folder = Path(name)
            # NVIDIA's own compiler takes inline PTX.
            options = [f"-march={self.name}", "-fasm"]
            path = _clang(tools, program, "nvptx64-nvidia-nvcl", NVIDIA_LIBRARY, folder, *options)
            code = path.read_text()
            if missing := missing_in_ptx(code):
                raise CompileError(f"undefined functions: {' '.join(missing)}")
            cubin = folder / "program.cubin"
            said = run([tools.ptxas, f"-arch={self.name}", "-v", path, "-o", cubin])
            parts = ptxas_parts(said)
            found = {kernel: nvidia_figures(text, _ptx_of(kernel, code)) for kernel, text in parts.items()}
            if "mma.sync" in code or program.family == quantized.FAMILY:
                for kernel, text in sass_parts(run([tools.nvdisasm, "-c", cubin])).items():
                    found[kernel].matrix_share = matrix_share(text)
                    found[kernel].loop = multiplying_loop(text)
        return found


def nvidia_figures(said: str, code: str) -> Figures:
    """Read a kernel's figures.

    Args:
        said: the output of `ptxas -v` for it.
        code: its PTX.

    Returns:
        The figures.
    """
    numbers = ptxas_numbers(said)
    loads = re.findall(r"\bld\.global(?:\.nc)?(\.v[24])?", code)
    return Figures(
        registers=numbers["registers"],
        spills=numbers["spill stores"],
        scratch=numbers["stack frame"],
        local=numbers["smem"],
        waves=None,
        vector_loads=sum(map(bool, loads)),
        loads=len(loads),
    )


def missing_in_ptx(code: str) -> list[str]:
    """List the functions that PTX calls and does not define."""
    return sorted(set(re.findall(r"\.extern \.func\s+(?:\([^)]*\)\s*)?(\w+)", code)) - {"vprintf"})


def ptxas_parts(said: str) -> dict[str, str]:
    """Split the output of `ptxas -v` by kernel."""
    parts = re.split(r"Compiling entry function '(\w+)'", said)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def sass_parts(code: str) -> dict[str, str]:
    """Split the output of `nvdisasm -c` by kernel."""
    parts = re.split(r"^\.text\.(\w+):", code, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def ptxas_numbers(said: str) -> dict[str, int]:
    """Read registers and bytes of shared memory, stack and spills from the output of `ptxas -v` for a kernel."""
    patterns = {
        "registers": r"Used (\d+) registers",
        "smem": r"(\d+) bytes smem",
        "stack frame": r"(\d+) bytes stack frame",
        "spill stores": r"(\d+) bytes spill stores",
    }
    return {name: int(match[1]) if (match := re.search(pattern, said)) else 0 for name, pattern in patterns.items()}


def _ptx_of(kernel: str, code: str) -> str:
    start = code.index(f".entry {kernel}(")
    return code[start : code.find("\n}", start)]


class Amd:
    """An AMD GPU by its architecture: clang's AMDGCN.

    Args:
        name: such as "gfx1030".
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def compile(self, program: Program, tools: Tools) -> dict[str, Figures]:
        """Compile a program: as `Nvidia.compile`."""
        with TemporaryDirectory() as name:
            # Rusticl, by which many of these GPUs are used, may get this form.
            cpu = [f"-mcpu={self.name}", "-nogpulib", "-DFMA_OR_MAD=mad"]
            code = _clang(tools, program, "amdgcn-amd-amdhsa", AMD_LIBRARY, Path(name), *cpu).read_text()
        if missing := missing_in_amdgcn(code):
            raise CompileError(f"undefined functions: {' '.join(missing)}")
        return amdgcn_figures(code)


def missing_in_amdgcn(code: str) -> list[str]:
    """List the symbols that assembly references and does not define."""
    named = set(re.findall(r"\b([A-Za-z_]\w*)@(?:got)?(?:pc)?rel32@lo", code))
    return sorted(name for name in named if not re.search(rf"^{re.escape(name)}:", code, re.MULTILINE))


def amdgcn_figures(code: str) -> dict[str, Figures]:
    """Read each kernel's figures from assembly.

    Args:
        code: clang's output, with its remarks.

    Returns:
        The figures by kernel.
    """
    figures = {}
    spills = dict(re.findall(r"^\s+\.name:\s+(\w+)\n(?:\s+\..*\n)*?\s+\.vgpr_spill_count:\s+(\d+)", code, re.MULTILINE))
    for kernel in re.findall(r"^\s*\.amdhsa_kernel (\w+)", code, re.MULTILINE):
        start = code.index(f"\n{kernel}:")
        remarks_end = code.index("; COMPUTE_PGM_RSRC2:SCRATCH_EN", start)
        part = code[start:remarks_end]
        loads = re.findall(r"\b(?:global|flat|buffer)_load_(\w+)", part)
        number = dict(re.findall(r"^; (\w+): (\d+)", part, re.MULTILINE))
        local = re.search(r"^; LDSByteSize: (\d+)", part, re.MULTILINE)
        figures[kernel] = Figures(
            registers=int(number["NumVgprs"]),
            spills=4 * int(spills.get(kernel, 0)),
            scratch=int(number["ScratchSize"]),
            local=int(local[1]) if local else 0,
            waves=int(number["Occupancy"]),
            vector_loads=sum("x2" in load or "x3" in load or "x4" in load for load in loads),
            loads=len(loads),
            loop=multiplying_loop(part) if kernel.startswith(quantized.FAMILY) else 0,
        )
    return figures


class Declared:
    """Intel's matrix instructions, which Debian 12's ocloc lacks: clang checks the source, with declared functions.

    Args:
        name: such as "dpas".
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def compile(self, program: Program, tools: Tools) -> dict[str, Figures]:
        """Check a program. No kernel has figures."""
        name = "__attribute__((overloadable)) intel_sub_group_{0}_{0}_matrix_mad_k{1}"
        kinds = (("f16", 16, "float8"), ("bf16", 16, "float8"), ("i8", 32, "int8"))
        functions = [
            f"{sums} {name.format(kind, k)}({a} a, int8 b, {sums} c);"
            for kind, k, sums in kinds
            for a in ("int8", "short8")
        ]
        functions.append("float intel_sub_group_shuffle_xor(float value, uint mask);")
        with TemporaryDirectory() as folder:
            source = Path(folder) / "program.cl"
            source.write_text("\n".join([*functions, program.source]))
            strict = ["-fsyntax-only", "-Wno-everything", "-Werror=implicit-function-declaration", "-ferror-limit=5"]
            run([tools.clang, "-x", "cl", "-target", "spir64", *strict, *program.clang_options, source])
        return {}


# Intel's: generation 9 (Skylake), 12 (Tiger Lake), Arc and the Data Center GPU Max.
TARGETS: dict[str, Nvidia | Amd | Intel | Declared] = {
    target.name: target
    for target in (
        *(Nvidia(name) for name in ("sm_90", "sm_80", "sm_75")),
        *(Amd(name) for name in ("gfx1030", "gfx803", "gfx900", "gfx906", "gfx1100", "gfx1201", "gfx90a", "gfx942")),
        *(Intel(name, has_double=name in ("skl", "pvc")) for name in ("skl", "tgllp", "acm-g10", "pvc")),
        Declared("dpas"),
    )
}
DEFAULT_TARGETS = ("sm_90", "gfx1030", "acm-g10")
# Programs for certain GPUs are compiled for these too.
MATRIX_TARGETS = ("sm_80", "gfx906", "gfx1100", "gfx1201", "gfx90a", "gfx942", "dpas")
