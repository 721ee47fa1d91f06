"""Limits for every program, and for the kernels of hot_kernels.txt."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_compile import quantized
from gpu_compile.build import Result
from gpu_compile.figures import Figures
from gpu_compile.occupancy import of_launch
from gpu_compile.programs import Launch
from gpu_compile.sources import CPU_ONLY, UNRECORDED, families

HOT_KERNELS = Path(__file__).with_name("hot_kernels.txt")
# Local memory that every GPU has; a kernel that needs more cannot be launched on some.
MOST_LOCAL = 32 << 10
# Local memory of every GPU with matrix instructions.
MOST_LOCAL_WITH_TILES = 48 << 10
# Targets whose compilers load the elements of a vector one by one unless they know that it is aligned.
VECTOR_TARGETS = frozenset({"sm_80", "sm_90"})
# Least share of matrix instructions in the loop of the large blocks of gemm_tile on these targets, by further
# constants; the first entry applies whose constants a program has. Kernels of float32 round operands to
# TensorFloat-32 by further instructions, and load words one by one if rows run along the outer index. Convolutions
# compute positions.
LOOP_TARGETS = frozenset({"sm_80", "sm_90"})
LARGE_BLOCK = frozenset({"BLOCK_ROWS=128"})
FLOAT32 = "SPEC_DTYPE0=6"
LEAST_MATRIX_SHARES = {
    frozenset({FLOAT32, "A_ALONG_K=1", "B_ALONG_K=1"}): 0.2,
    frozenset({FLOAT32}): 0.18,
    frozenset({"A_KIND=1"}): 0.27,
    frozenset({"B_KIND=1"}): 0.27,
    frozenset({"B_KIND=2"}): 0.18,
    frozenset(): 0.38,
}
# A matrix-vector product with quantised weights may take this many in its inner loop.
MOST_INSTRUCTIONS_A_WEIGHT = 10


@dataclass(frozen=True)
class Use:
    """A launched kernel of a program, on a target.

    Attributes:
        kernel: its name.
        target: the target's name.
        program: the program's name.
        figures: the resources it needs.
        launch: how it is launched.
    """

    kernel: str
    target: str
    program: str
    figures: Figures
    launch: Launch

    @property
    def local(self) -> int:
        """Bytes of local memory of a group."""
        return self.figures.local + self.launch.local

    @property
    def occupancy(self) -> float:
        """The fraction of the target's waves that can be resident."""
        return of_launch(self.target, self.figures.registers, self.figures.waves, self.local, self.launch.group)


def uses(results: Iterable[Result]) -> list[Use]:
    """List the kernels that are launched.

    Args:
        results: the compiled programs.

    Returns:
        Each kernel of each program that is launched, on each target.
    """
    return [
        Use(kernel, result.target, result.program.name, figures, result.program.launches[kernel])
        for result in results
        for kernel, figures in result.kernels.items()
        if kernel in result.program.launches
    ]


def hot_kernels(path: Path = HOT_KERNELS) -> dict[str, dict[str, int]]:
    """Read the list of hot kernels.

    Args:
        path: a file with lines such as `gemm_local:DENSE=1 sm_90=128 gfx1030=128`, for all programs of a kernel or
            for the programs that have some constants; comments start with #.

    Returns:
        The register limits by target, and the least vector loads as "vectors", by kernel and constants.
    """
    listed = {}
    for line in path.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            limits = (word.split("=") for word in words[1:])
            listed[words[0]] = {target: int(registers) for target, registers in limits}
    return listed


def failures(results: Iterable[Result], hot: dict[str, dict[str, int]]) -> list[str]:
    """List violated limits.

    Args:
        results: the compiled programs.
        hot: what `hot_kernels` returns.

    Returns:
        A line for each violation.
    """
    results = list(results)
    found = [f"{r.target}: {r.program.name}: {r.error}" for r in results if r.error]
    for result in results:
        for kernel, figures in result.kernels.items():
            asked = result.program.launches.get(kernel, Launch(0, 0)).local
            most = MOST_LOCAL_WITH_TILES if result.program.targets else MOST_LOCAL
            if figures.local + asked > most:
                found.append(f"{result.target}: {kernel} of {result.program.name} takes "
                             f"{figures.local + asked} bytes of local memory; some GPUs have {most}")  # fmt: skip
            constants = set(result.program.name.split())
            least = next(share for listed, share in LEAST_MATRIX_SHARES.items() if constants >= listed)
            has_limit = result.target in LOOP_TARGETS and constants >= LARGE_BLOCK
            if has_limit and figures.matrix_share < least:
                found.append(f"{result.target}: {kernel} of {result.program.name}: {figures.matrix_share:.0%} of the "
                             f"loop's instructions are matrix instructions; the limit is {least:.0%}")  # fmt: skip
    for use in uses(results):
        count = quantized.instructions_a_weight(use)
        if count is not None and not 0 < count <= MOST_INSTRUCTIONS_A_WEIGHT:
            found.append(f"{use.target}: {use.program}: {count:.1f} instructions a weight; the limit is "
                         f"{MOST_INSTRUCTIONS_A_WEIGHT}")  # fmt: skip
        broken = [what for listed in hot if _is_listed(use, listed) for what in _broken(use, hot[listed])]
        found += [f"{use.target}: {use.kernel} of {use.program} {what}" for what in dict.fromkeys(broken)]
    return found


def line_of(use: Use, hot: Iterable[str]) -> str | None:
    """Find the kernel and constants of hot_kernels.txt that name a kernel of a program most exactly."""
    return max((listed for listed in hot if _is_listed(use, listed)), key=lambda line: line.count(":"), default=None)


def _is_listed(use: Use, listed: str) -> bool:
    """Tell whether a line of the list applies to a kernel of a program."""
    kernel, *constants = listed.split(":")
    return use.kernel == kernel and set(constants) <= set(use.program.split())


def _broken(use: Use, limits: dict[str, int]) -> list[str]:
    """List the limits that a hot kernel violates."""
    broken = []
    if use.figures.spills:
        broken.append(f"spills {use.figures.spills} bytes of registers")
    if use.figures.scratch:
        broken.append(f"uses {use.figures.scratch} bytes of scratch memory per work-item")
    most = limits.get(use.target)
    if most is not None and use.figures.registers > most:
        broken.append(f"takes {use.figures.registers} registers, and hot_kernels.txt allows {most}")
    least = limits.get("vectors", 0) if use.target in VECTOR_TARGETS else 0
    if use.figures.vector_loads < least:
        broken.append(f"has {use.figures.vector_loads} loads of whole vectors, and hot_kernels.txt asks for {least}")
    return broken


def gaps(results: Iterable[Result], hot: dict[str, dict[str, int]]) -> list[str]:
    """List what should have been checked and was not.

    Args:
        results: all programs, compiled.
        hot: what `hot_kernels` returns.

    Returns:
        A line for each family that no call uses and each hot kernel that none launches.
    """
    results = list(results)
    seen = {result.program.family for result in results}
    unused = [listed for listed in hot if not any(_is_listed(use, listed) for use in uses(results))]
    missing = sorted(set(families()) - seen - CPU_ONLY - UNRECORDED)
    return [f"no call uses the family {name}: add one to calls.py" for name in missing] + [
        f"no call launches {listed} of hot_kernels.txt" for listed in sorted(unused)
    ]
