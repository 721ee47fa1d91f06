"""Limits that must hold: of every program, and of the kernels of hot_kernels.txt."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_compile.build import Result
from gpu_compile.occupancy import of_launch
from gpu_compile.programs import Launch
from gpu_compile.sources import CPU_ONLY, families
from gpu_compile.targets import Figures

HOT_KERNELS = Path(__file__).with_name("hot_kernels.txt")
# Local memory that every GPU has; a kernel that takes more does not start on some.
MOST_LOCAL = 32 << 10


@dataclass(frozen=True)
class Use:
    """A kernel of a program that is launched, on a target.

    Attributes:
        kernel: its name.
        target: the target's name.
        program: the program's name.
        figures: what it needs.
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
        """The part of the target's waves that can be there at once."""
        return of_launch(self.target, self.figures.registers, self.figures.waves, self.local, self.launch.group)


def uses(results: Iterable[Result]) -> list[Use]:
    """List the kernels that are launched.

    Args:
        results: compiled programs.

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
        path: a file with lines such as `gemm_local:DENSE=1 sm_90=128 gfx1030=128`, for a kernel or for those of its
            programs that have a constant, and comments after #.

    Returns:
        The most registers by target, by kernel and constant.
    """
    listed = {}
    for line in path.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            limits = (word.split("=") for word in words[1:])
            listed[words[0]] = {target: int(registers) for target, registers in limits}
    return listed


def failures(results: Iterable[Result], hot: dict[str, dict[str, int]]) -> list[str]:
    """Say what does not hold.

    Args:
        results: compiled programs.
        hot: what `hot_kernels` returns.

    Returns:
        A line for each failure.
    """
    results = list(results)
    found = [f"{r.target}: {r.program.name}: {r.error}" for r in results if r.error]
    for result in results:
        for kernel, figures in result.kernels.items():
            asked = result.program.launches.get(kernel, Launch(0, 0)).local
            if figures.local + asked > MOST_LOCAL:
                found.append(f"{result.target}: {kernel} of {result.program.name} takes "
                             f"{figures.local + asked} bytes of local memory; some GPUs have {MOST_LOCAL}")  # fmt: skip
    for use in uses(results):
        broken = [what for listed in hot if _is_listed(use, listed) for what in _broken(use, hot[listed])]
        found += [f"{use.target}: {use.kernel} of {use.program} {what}" for what in dict.fromkeys(broken)]
    return found


def _is_listed(use: Use, listed: str) -> bool:
    """Say whether a line is for a kernel of a program."""
    kernel, _, constant = listed.partition(":")
    return use.kernel == kernel and (not constant or constant in use.program.split())


def _broken(use: Use, limits: dict[str, int]) -> list[str]:
    """Say what a hot kernel must not do and does."""
    broken = []
    if use.figures.spills:
        broken.append(f"spills {use.figures.spills} bytes of registers")
    if use.figures.scratch:
        broken.append(f"keeps {use.figures.scratch} bytes of each work-item in memory")
    most = limits.get(use.target)
    if most is not None and use.figures.registers > most:
        broken.append(f"takes {use.figures.registers} registers, and hot_kernels.txt allows {most}")
    return broken


def gaps(results: Iterable[Result], hot: dict[str, dict[str, int]]) -> list[str]:
    """Say what has not been looked at and should have been.

    Args:
        results: all programs, compiled.
        hot: what `hot_kernels` returns.

    Returns:
        A line for each family and hot kernel that no call asks for.
    """
    results = list(results)
    seen = {result.program.family for result in results}
    unused = [listed for listed in hot if not any(_is_listed(use, listed) for use in uses(results))]
    missing = sorted(set(families()) - seen - CPU_ONLY)
    return [f"no call asks for the family {name}: add one to calls.py" for name in missing] + [
        f"no call launches {listed} of hot_kernels.txt" for listed in sorted(unused)
    ]
