"""Compiles programs in parallel, and caches the results of unchanged programs."""

import json
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from gpu_compile import figures, intel, loops, targets
from gpu_compile.figures import CompileError, Figures, TooSlow
from gpu_compile.programs import Program
from gpu_compile.targets import TARGETS
from gpu_compile.tools import FOLDER, Tools


@dataclass
class Result:
    """A program compiled for a target.

    Attributes:
        program: the program.
        target: the target's name.
        error: why it does not compile; empty if it does.
        kernels: the figures by kernel.
    """

    program: Program
    target: str
    error: str = ""
    kernels: dict[str, Figures] = field(default_factory=dict)


def compile_all(
    programs: Sequence[Program], names: Sequence[str], tools: Tools, jobs: int, seconds: float = math.inf
) -> tuple[list[Result], int]:
    """Compile programs for targets, generic ones first.

    Args:
        programs: the programs.
        names: the targets.
        tools: the compilers.
        jobs: how many compilers run at once.
        seconds: no compiler is started after this time.

    Returns:
        A result for each program and target that time allowed, and how many are left.
    """
    until = time.monotonic() + seconds
    ordered = sorted(programs, key=lambda program: program.is_specialised)
    work = [(program, name) for program in ordered for name in targets_of(program, names)]

    def compile_in_time(pair: tuple[Program, str]) -> Result | None:
        return find_or_compile(*pair, tools) if time.monotonic() < until else known(*pair, tools)

    with ThreadPoolExecutor(jobs) as pool:
        results = list(filter(None, pool.map(compile_in_time, work)))
    return results, len(work) - len(results)


def targets_of(program: Program, names: Sequence[str]) -> Sequence[str]:
    """Return the targets that a program is compiled for.

    Args:
        program: the program.
        names: the targets of programs for all GPUs.

    Returns:
        These, or those of the program that are among them or in `targets.MATRIX_TARGETS`.
    """
    if not program.targets:
        return names
    return [name for name in program.targets if name in (*names, *targets.MATRIX_TARGETS)]


def known(program: Program, target: str, tools: Tools) -> Result | None:
    """Return the cached result of an earlier run, or None.

    Args:
        program: the program.
        target: the target's name.
        tools: the compilers.

    Returns:
        The result.
    """
    try:
        found = json.loads(_place(program, target, tools).read_text())
    except (OSError, ValueError):
        return None
    kernels = {kernel: Figures(**value) for kernel, value in found["kernels"].items()}
    return Result(program, target, found["error"], kernels)


def find_or_compile(program: Program, target: str, tools: Tools) -> Result:
    """Return the cached result of an earlier run, or compile; as `known`."""
    if (result := known(program, target, tools)) is not None:
        return result
    result = Result(program, target)
    try:
        result.kernels = TARGETS[target].compile(program, tools)
    except TooSlow as error:
        return Result(program, target, str(error))  # Not cached: the next run tries again.
    except CompileError as error:
        result.error = str(error)
    path = _place(program, target, tools)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written under another name first: an interrupted run must not leave half a file.
    path.with_suffix(".new").write_text(
        json.dumps({"error": result.error, "kernels": {name: asdict(value) for name, value in result.kernels.items()}})
    )
    path.with_suffix(".new").replace(path)
    return result


def _place(program: Program, target: str, tools: Tools) -> Path:
    """Return the cache path of a result: a digest of everything it depends on."""
    key = sha256("\n".join((program.digest, target, *_origins(target, tools))).encode()).hexdigest()[:32]
    return FOLDER / "cache" / f"{key}.json"


def _origins(target: str, tools: Tools) -> tuple[str, ...]:
    """Return the versions of the compilers for a target, and of the source that reads their figures."""
    if isinstance(TARGETS[target], intel.Intel):
        return tools.ocloc_version, _texts(figures, intel)
    return tools.version, tools.library, _texts(figures, loops, targets)


@cache
def _texts(*modules: ModuleType) -> str:
    return "".join(Path(str(module.__file__)).read_text() for module in modules)
