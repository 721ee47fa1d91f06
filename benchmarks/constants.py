"""Repeats the measurements by which constants of the Rust code were chosen.

Such a constant is marked in Rust: `const MOST: u64 = measured!("LAUNCH_BATCH", 1024);`. This file has the values to
compare it with and the rows that depend on it. For each value the library is compiled into a separate package, which
changes no file of the checkout; then one process per value measures the rows, in turns.
"""

import contextlib
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.case import Case
from benchmarks.cases import all_cases, measured
from benchmarks.eager import MODE, WorkerProcess
from benchmarks.measure import ROUNDS
from benchmarks.report import describe, seconds_text
from build_support import native

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "python" / "torch_opencl"
VARIABLE = "TORCH_OPENCL_CONSTANT_"
DECLARED = re.compile(r'measured!\("(\w+)", (\d+)(?: << (\d+))?\)')
KIBI, MEBI = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Constant:
    """The measurement of a constant.

    Attributes:
        others: values to compare with the current one.
        rows: names of the rows that depend on it, in `make bench` or in :mod:`benchmarks.cases.measured`.
    """

    others: tuple[int, ...]
    rows: tuple[str, ...]


CONSTANTS = {
    "LAUNCH_BATCH": Constant((1, 64, 256), ("add of 4", "chain of add of 4, to its end")),
    "NON_TEMPORAL_BYTES": Constant(
        (2 * MEBI, 64 * MEBI), ("copy of 4 MiB", "copy of 32 MiB and a sum", "zeros of 16 MiB and a scatter_add_")
    ),
    "SPECIALISED_ELEMENTS": Constant((1 << 13, 1 << 19), ("exp of 16 K", "exp of 64 K", "exp of 256 K")),
    "ATTENTION_BLOCK": Constant((32, 128), ("512 queries", "512 queries, causal", "2048 queries")),
    "ATTENTION_FEW_QUERIES": Constant(
        (0, 15), ("1 query of 1024 keys", "2 queries of 1024 keys", "4 queries of 1024 keys")
    ),
    "TOPK_HEAP_SHARE": Constant(
        (8, 512), ("topk 100 of 1024x1024", "topk 5 of 128x1000 f32", "topk 50 of 64x50257 f32", "topk 1000 of 1M f32")
    ),
    "RADIX_SHORTEST": Constant((32, 512), ("sort rows 16384x64", "sort rows 8192x128", "sort rows 4096x256")),
    "TRANSPOSE_TILE": Constant((64, 256), ("transpose f32", "copy_ transposed f32")),
    "CONV_WEIGHT_BOX_BYTES": Constant((48 * KIBI, 192 * KIBI), ("7x7/2 3-64 224 f32 weight",)),
    "CONV_DIRECT_CHANNELS": Constant(
        (0, 16),
        ("3x3/1 64-64 56 groups 64 f32", "3x3/1 128-128 28 groups 32 f32", "3x3/1 1-32 28 batch 64 f32"),
    ),
}


def declared() -> dict[str, tuple[Path, int]]:
    """Find the constants in the Rust code.

    Returns:
        The file and the value of each, by name.
    """
    found = {}
    for path in sorted((ROOT / "rust").rglob("*.rs")):
        for name, number, shift in DECLARED.findall(path.read_text()):
            found[name] = path, int(number) << int(shift or 0)
    return found


def rows_of(constant: Constant) -> list[Case]:
    """Return the rows that depend on a constant."""
    return [case for case in (*all_cases(), *measured.cases()) if case.name in constant.rows]


def run(device_name: str, names: Sequence[str]) -> int:
    """Measure rows with other values of constants, and print how the times compare.

    Args:
        device_name: the device to measure.
        names: the constants; none for all.

    Returns:
        The exit code: 2 if there is no such constant.
    """
    if unknown := set(names) - set(CONSTANTS):
        print(f"There is no constant {', '.join(sorted(unknown))}; there are {', '.join(CONSTANTS)}.", file=sys.stderr)
        return 2
    print(f"{describe(torch.device(device_name))}: times, and ratios of the times with other values to them")
    files = declared()
    for name in names or CONSTANTS:
        path, value = files[name]
        print(f"\n{name}, {path.relative_to(ROOT)}", flush=True)
        _compare(device_name, name, (value, *CONSTANTS[name].others))
    return 0


def _compare(device: str, name: str, values: Sequence[int]) -> None:
    with contextlib.ExitStack() as stack:
        processes = []
        for value in values:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            # The installed library has the first value.
            library = _installed() if not processes else native.compile_library({VARIABLE + name: str(value)})
            make_package(Path(folder), library)
            process = WorkerProcess(device, _environment(folder))
            stack.callback(process.close)
            processes.append(process)
        print(f"{'row':<44}" + "".join(f"{value:>11}" for value in values), flush=True)
        for case in rows_of(CONSTANTS[name]):
            _print_row(case, processes)


def _print_row(case: Case, processes: Sequence[WorkerProcess]) -> None:
    prepared = [process.prepare(case) for process in processes]
    if not all(prepared):
        print(f"{case.name:<44} fails on this device")
        return
    rounds = [list(_in_turns(processes, backwards=bool(turn % 2))) for turn in range(ROUNDS)]
    now = statistics.median(first for first, *_ in rounds)
    ratios = [statistics.median(other / first for first, other in pairs) for pairs in _pairs(rounds)]
    print(f"{case.name:<44}{seconds_text(now):>11}" + "".join(f"{ratio:11.2f}" for ratio in ratios), flush=True)


def _in_turns(processes: Sequence[WorkerProcess], backwards: bool) -> list[float]:
    order = list(enumerate(processes))
    seconds = {index: process.seconds() for index, process in (reversed(order) if backwards else order)}
    return [seconds[index] for index in range(len(processes))]


def _pairs(rounds: Sequence[Sequence[float]]) -> Iterator[list[tuple[float, float]]]:
    """Yield, for each value except the first, pairs of the first's times and its own."""
    first, *others = zip(*rounds, strict=True)
    for other in others:
        yield list(zip(first, other, strict=True))


def _installed() -> Path:
    return native.package_folder() / native.LIBRARY


def make_package(folder: Path, library: Path) -> None:
    """Put this package with another library into a folder.

    Args:
        folder: the parent folder of the new `torch_opencl`.
        library: its native library.
    """
    package = folder / PACKAGE.name
    target = package / _installed().parent.relative_to(PACKAGE)
    target.mkdir(parents=True)
    for path in PACKAGE.iterdir():
        if path.name not in ("lib", "__pycache__"):
            (package / path.name).symlink_to(path)
    shutil.copyfile(library, target / library.name)
    shutil.copyfile(_installed().with_name("build_info.json"), target / "build_info.json")


def _environment(folder: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    # Our kernels compute matmuls, even if another library is faster.
    return {"PYTHONPATH": path, MODE: "eager", "TORCH_OPENCL_BLAS": "opencl"}
