"""Compiles programs in parallel, and keeps what has been found for programs that have not changed."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path

from gpu_compile import targets
from gpu_compile.programs import Program
from gpu_compile.targets import TARGETS, CompileError, Figures
from gpu_compile.tools import FOLDER, Tools


@dataclass
class Result:
    """A program compiled for a target.

    Attributes:
        program: the program.
        target: the target's name.
        error: why it does not compile; empty where it does.
        kernels: the figures by kernel.
    """

    program: Program
    target: str
    error: str = ""
    kernels: dict[str, Figures] = field(default_factory=dict)


def compile_all(programs: Sequence[Program], names: Sequence[str], tools: Tools, jobs: int) -> list[Result]:
    """Compile programs for targets.

    Args:
        programs: the programs.
        names: the targets.
        tools: the compilers.
        jobs: how many compilers run at once.

    Returns:
        A result for each program and target.
    """
    work = [(program, name) for program in programs for name in names]
    with ThreadPoolExecutor(jobs) as pool:
        results = []
        for number, result in enumerate(pool.map(lambda pair: compile_one(*pair, tools), work), 1):
            results.append(result)
            if number % 200 == 0:
                print(f"    {number} of {len(work)}", flush=True)
    return results


def compile_one(program: Program, target: str, tools: Tools) -> Result:
    """Compile a program for a target, unless that is known.

    Args:
        program: the program.
        target: the target's name.
        tools: the compilers.

    Returns:
        The result.
    """
    key = sha256("\n".join((program.digest, target, tools.version, _reader())).encode()).hexdigest()[:32]
    path = FOLDER / "cache" / f"{key}.json"
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        try:
            figures = TARGETS[target].compile(program, tools)
            known = {"kernels": {kernel: asdict(value) for kernel, value in figures.items()}}
        except CompileError as error:
            known = {"error": str(error)}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(known))
    kernels = {kernel: Figures(**value) for kernel, value in known.get("kernels", {}).items()}
    return Result(program, target, known.get("error", ""), kernels)


@cache
def _reader() -> str:
    """Return what the figures are read by: they are read again where that has changed."""
    return Path(targets.__file__).read_text()
