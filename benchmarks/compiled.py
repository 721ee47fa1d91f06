"""Measures ``torch.compile``: in turns eager mode on the device, compiled for it, and Inductor's C++ on the CPU."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.cases.compiled import CompiledCase
from benchmarks.clock import CPU, share_threads, wall_and_processor_seconds, warm_up
from benchmarks.compiled_host import print_first_step, print_wrapper
from benchmarks.measure import ROUNDS, WrongResult, check
from benchmarks.report import append, describe, seconds_text
from benchmarks.run import first_line
from benchmarks.targets import COMPILED

# Wall time and processor time of each round.
Rounds = list[tuple[float, float]]
WALL, PROCESSOR = range(2)


@dataclass(frozen=True, kw_only=True)
class CompiledRow:
    """The measurement of a case.

    Attributes:
        group: the case's group.
        name: the case's name.
        eager: seconds of a call in eager mode on the device, in each round: wall time, and processor time of all
            threads of the process.
        compiled: as `eager`, compiled for the device.
        inductor: as `eager`, compiled by Inductor for the CPU.
        least: the required ratio to eager mode.
        judged: the index of the time that is judged: 1, processor time, if the device is a CPU, otherwise 0.
    """

    group: str
    name: str
    eager: Rounds
    compiled: Rounds
    inductor: Rounds
    least: float
    judged: int

    def over(self, other: Rounds, which: int) -> float:
        """Return the speedup of the compiled work: the median of the rounds' ratios."""
        pairs = zip(other, self.compiled, strict=True)
        return statistics.median(theirs[which] / ours[which] for theirs, ours in pairs)

    @property
    def shortfall(self) -> str:
        """Ratios that the row does not reach, as text; empty if it reaches all."""
        inductor = COMPILED[self.group].inductor
        lacks = {
            f"eager {self.least:g}": self.over(self.eager, self.judged) < self.least,
            f"inductor {inductor or 0:g}": inductor is not None and self.over(self.inductor, self.judged) < inductor,
        }
        return ", ".join(name for name, is_short in lacks.items() if is_short)


def run(cases: Sequence[CompiledCase], device_name: str, lines: Path | None = None, with_host: bool = True) -> int:
    """Measure cases, and print them and a summary.

    Args:
        cases: the cases.
        device_name: the device.
        lines: a file that gets each row as a line of JSON as soon as it is measured.
        with_host: whether to measure a wrapper and a first step as well.

    Returns:
        The exit code: 1 if a result differs or a case failed.
    """
    device = torch.device(device_name)
    share_threads(device)
    is_cpu = torch.opencl.get_device_properties(device).type == "cpu"
    print(
        f"{describe(device)}, PyTorch {torch.__version__}, {torch.get_num_threads()} threads on the CPU.\n"
        f"Times of a call: wall time, and processor time of all threads, which is judged on CPUs.\n"
        f"{'':<46} {'eager':>19} {'compiled':>19} {'C++ on the CPU':>19}  {'over eager':>11} {'over C++':>11}"
    )
    rows, failed, group = [], False, ""
    for case in cases:
        if case.group != group:
            group = case.group
            print(f"\n{group}")
        try:
            rows.append(measure(case, device, PROCESSOR if is_cpu else WALL))
        except (WrongResult, RuntimeError, ImportError) as error:
            print(f"{case.name:<46} {first_line(error)}", flush=True)
            append(lines, {"group": case.group, "name": case.name, "error": first_line(error)})
            failed = True
        else:
            _print_row(rows[-1])
            append(lines, asdict(rows[-1]))
    _print_summary(rows)
    if with_host:
        print()
        print_wrapper(device)
        print_first_step(device_name)
    return int(failed)


def measure(case: CompiledCase, device: torch.device, judged: int = PROCESSOR) -> CompiledRow:
    """Measure a case.

    Args:
        case: the case.
        device: the device.
        judged: the index of the time that is judged.

    Returns:
        The measurements.

    Raises:
        WrongResult: if the compiled result differs from eager mode's, or from the CPU's, by more than the case allows.
    """
    # Rows share functions, and Dynamo would try graphs of earlier rows first.
    torch._dynamo.reset()
    works = {}
    for name, where, prepare in (
        ("inductor", CPU, _compiled),
        ("eager", device, _as_it_is),
        ("compiled", device, _compiled),
    ):
        torch.manual_seed(0)
        works[name] = where, case.build(where, prepare)
    results = {name: work.run() for name, (_, work) in works.items()}
    for other in ("eager", "inductor"):
        check(results["compiled"], results[other], case.tolerance)
    del results
    repeats = {name: warm_up(work, where) for name, (where, work) in works.items()}
    seconds: dict[str, Rounds] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, (where, work) in works.items():
            seconds[name].append(wall_and_processor_seconds(work, where, repeats[name]))
    least = COMPILED[case.group].eager if case.eager is None else case.eager
    return CompiledRow(group=case.group, name=case.name, **seconds, least=least, judged=judged)


def _compiled(function: Callable) -> Callable:
    return torch.compile(function, dynamic=False)


def _as_it_is(function: Callable) -> Callable:
    return function


def _print_row(row: CompiledRow) -> None:
    sides = (row.eager, row.compiled, row.inductor)
    times = " ".join(
        seconds_text(statistics.median(times[which] for times in side)) for side in sides for which in (WALL, PROCESSOR)
    )
    ratios = "  ".join(
        " ".join(f"{row.over(other, which):5.2f}" for which in (WALL, PROCESSOR)) for other in (row.eager, row.inductor)
    )
    print(f"{row.name:<46} {times}  {ratios}{f'  SHORT: {row.shortfall}' if row.shortfall else ''}", flush=True)


def _print_summary(rows: Sequence[CompiledRow]) -> None:
    """Print each group against its target; means are geometric."""
    titles = ("over eager", "worst", "asked", "over C++", "worst")
    print(f"\n{'group':<16} {'rows':>4} {' '.join(f'{title:>10}' for title in titles)}  asked")
    for name, target in COMPILED.items():
        members = [row for row in rows if row.group == name]
        if not members:
            continue
        eager = [row.over(row.eager, row.judged) for row in members]
        inductor = [row.over(row.inductor, row.judged) for row in members]
        means = [statistics.geometric_mean(ratios) for ratios in (eager, inductor)]
        is_short = any(row.shortfall for row in members) or means[1] < (target.inductor_mean or 0)
        asked = f"{target.inductor:g} each" if target.inductor else f"mean {target.inductor_mean:g}"
        figures = (means[0], min(eager), target.eager, means[1], min(inductor))
        numbers = " ".join(f"{figure:10.2f}" for figure in figures)
        print(f"{name:<16} {len(members):4} {numbers}  {asked:<10} {'SHORT' if is_short else 'pass'}")
