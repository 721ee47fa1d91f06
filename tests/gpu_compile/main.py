"""The command line."""

import argparse
import math
import os
import sys
from dataclasses import replace

from gpu_compile import build, limits, quantized, record, report, sample, tools
from gpu_compile.intel import Intel
from gpu_compile.sources import UnknownProgram
from gpu_compile.targets import DEFAULT_TARGETS, TARGETS

RESULTS = tools.FOLDER / "results.json"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make gpu-compile", description="Compile the programs that GPUs run.")
    parser.add_argument("words", nargs="*", help="families, kernels, words or patterns of programs' names")
    parser.add_argument("--sample", action="store_true", help="some programs of each family, in a minute")
    parser.add_argument("--targets", nargs="+", choices=sorted(TARGETS), default=DEFAULT_TARGETS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no compiler after this time")
    parser.add_argument("--rows", type=int, default=60, help="rows of the table that are printed")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/gpu_checks.md")
    return parser.parse_args(arguments)


def main() -> int:
    """Record, compile and report.

    Returns:
        The exit status: 1 if a limit is violated, 2 if that cannot be determined.
    """
    asked = parse()
    try:
        compilers = tools.find()
        programs = record.programs(asked.sample)
    except (tools.MissingTool, record.RecordError, UnknownProgram) as error:
        print(f"gpu-compile: {error}", file=sys.stderr)
        return 2
    if compilers.ocloc is None:
        asked.targets = [name for name in asked.targets if not isinstance(TARGETS[name], Intel)]
        print("==> without Intel's GPUs: ocloc is not installed", file=sys.stderr)
        if not asked.targets:
            return 2
    if asked.sample:
        programs = sample.of(programs)
    chosen = [program for program in programs if program.is_asked_for(asked.words)]
    if not chosen:
        print(f"gpu-compile: no program matches {' or '.join(asked.words)}", file=sys.stderr)
        return 2
    print(f"==> compiling {len(chosen)} programs for {' and '.join(asked.targets)}", flush=True)
    results, left = build.compile_all(chosen, asked.targets, compilers, asked.jobs, asked.seconds)
    versions = f"{compilers.version}; {compilers.ocloc_version}"
    report.write(RESULTS, results, versions)
    is_broken = tell(results, asked, versions, is_all=not left and not asked.words)
    if left:
        print(f"{left} of {len(chosen) * len(asked.targets)} are left: run it again")
    return 1 if is_broken else 2 if left else 0


def tell(results: list[build.Result], asked: argparse.Namespace, version: str, is_all: bool) -> bool:
    """Print the table and the violated limits.

    Args:
        results: the compiled programs.
        asked: the command line.
        version: of the compilers.
        is_all: whether all programs are among the results.

    Returns:
        True if a limit is violated.
    """
    hot = limits.hot_kernels()
    found = limits.uses(results)
    if asked.markdown:
        listed = [replace(use, kernel=line) for use in found if (line := limits.line_of(use, hot))]
        print(report.markdown(report.rows(listed)))
    else:
        table = report.rows(found)
        print(report.text(table[: asked.rows]))
        if len(table) > asked.rows:
            print(f"... and {len(table) - asked.rows} better ones; all of them are in {RESULTS}")
    if quantized.FAMILY in asked.words:
        print("\n".join(quantized.lines(found)))
    broken = limits.failures(results, hot)
    if is_all:
        broken += limits.gaps(results, hot)
    kernels = sum(len(result.kernels) for result in results)
    print(f"{version}: {len(results)} programs with {kernels} kernels, {len(broken)} failures")
    for line in broken:
        print(f"FAIL {line}")
    return bool(broken)
