"""Starts workers, restarts them after crashes and hangs, and reports findings."""

import argparse
import pickle
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from process_runner import CONTEXT, DiedError, Worker

# Longer than any case that compiles kernels.
HANG_SECONDS = 120.0
# Seconds that importing PyTorch may take on a busy machine.
START_SECONDS = 60.0
# For each attempt to shrink a case that ends its process.
PROBE_SECONDS = 30.0
# Each attempt is a process: all attempts get this many times as much time.
PROCESS_FACTOR = 6.0


@dataclass
class Report:
    """Findings of a run, by operator and kind: the numbers of the cases."""

    cases: int = 0
    findings: dict[str, list[int]] = field(default_factory=dict)
    cpu_deaths: list[int] = field(default_factory=list)

    def add(self, number: int, key: str, text: str, code: str, again: str) -> None:
        """Count a finding, and print the first of its kind.

        Args:
            number: the case.
            key: operator and kind.
            text: the error.
            code: a program that shows it.
            again: the command that repeats it.
        """
        cases = self.findings.setdefault(key, [])
        cases.append(number)
        if len(cases) == 1:
            print(f"\n--- case {number}: {key}\n{text}\n{again}\n\n{code}", flush=True)

    def summary(self) -> str:
        """Summarise the findings.

        Returns:
            A line for each kind, and a line of totals.
        """
        lines = [f"{len(cases):6} x {key}: cases {', '.join(map(str, cases[:5]))}"
                 for key, cases in sorted(self.findings.items(), key=lambda item: -len(item[1]))]  # fmt: skip
        if self.cpu_deaths:
            lines.append(f"PyTorch's CPU backend crashes or hangs in cases {', '.join(map(str, self.cpu_deaths))}")
        return "\n".join([*lines, f"{self.cases} cases, {len(self.findings)} findings"])


def main() -> int:
    """Run the program.

    Returns:
        The exit status: 1 if there are findings.
    """
    parser = argparse.ArgumentParser(prog="tests/fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run")
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="how many cases at most")
    parser.add_argument("--seed", type=int, default=0, help="which cases")
    parser.add_argument("--case", type=int, help="run this case only, and print it")
    parser.add_argument("--only", help="a function of fuzz.planted that all cases call")
    parser.add_argument("--hang", type=float, default=HANG_SECONDS, help="seconds after which a case hangs")
    parser.add_argument("--shrink", type=float, default=8.0, help="seconds to make a finding smaller")
    asked = parser.parse_args()
    if asked.case is not None:
        return repeat(asked)
    return supervise(asked)


def repeat(asked: argparse.Namespace) -> int:
    """Run one case in this process, and print it.

    Args:
        asked: the command line.

    Returns:
        The exit status: 1 if the case fails.
    """
    from fuzz.generate import make
    from fuzz.oracle import judge

    case = make(asked.seed, asked.case, asked.only)
    if case is None:
        print("no such case")
        return 0
    print(case.code(), flush=True)
    finding = judge(case)
    print(f"{finding.kind}: {finding.text}" if finding else "as the CPU")
    return 1 if finding else 0


def supervise(asked: argparse.Namespace) -> int:
    """Run cases in workers.

    Args:
        asked: the command line.

    Returns:
        The exit status: 1 if there are findings.
    """
    until = time.monotonic() + asked.seconds
    report, number = Report(), 0
    CONTEXT.set_forkserver_preload(["torch"])
    print(f"seed {asked.seed}, {asked.seconds:g} s", flush=True)
    while (left := until - time.monotonic()) > 0 and number < asked.cases:
        number = attend(asked, number, left, report)
    report.cases = number
    print(f"\n{report.summary()}", flush=True)
    return 1 if report.findings else 0


def attend(asked: argparse.Namespace, first: int, seconds: float, report: Report) -> int:
    """Run one worker to its end.

    Args:
        asked: the command line.
        first: its first case.
        seconds: how long it may run.
        report: the findings so far; new ones are added.

    Returns:
        The number of the next case.

    Raises:
        SystemExit: the worker ends before its first case.
    """
    number, name, device = None, "", ""
    limit = max(asked.hang, START_SECONDS)
    with closing(Worker("fuzz.worker:work", asked, first, seconds, set(report.findings))) as worker:
        try:
            while "end" not in (line := worker.receive(limit)):
                limit = asked.hang
                if "start" in line:
                    number, name = line["start"], ""
                name, device = line.get("name", name), line.get("device", device)
                if "found" in line:
                    report.add(line["found"], line["key"], line["text"], line["code"], command(asked, line["found"]))
            return line["end"]
        except DiedError as died:
            kind, text = died.kind, str(died)
    if number is None:
        raise SystemExit(f"the worker did not start:\n{text}")
    if device == "cpu":
        report.cpu_deaths.append(number)
        return number + 1
    key = f"{name or 'no function'} {kind}"
    code = "" if key in report.findings or not name else after_death(asked, number, kind)
    report.add(number, key, text, code, command(asked, number))
    return number + 1


def command(asked: argparse.Namespace, number: int) -> str:
    """Return the command that repeats a case.

    Args:
        asked: the command line.
        number: the case.

    Returns:
        A command.
    """
    only = f" --only {asked.only}" if asked.only else ""
    return f"again: .venv/bin/python tests/fuzz --seed {asked.seed} --case {number}{only}"


def after_death(asked: argparse.Namespace, number: int, kind: str) -> str:
    """Shrink a case that ends its process: each attempt is a process.

    Args:
        asked: the command line.
        number: the case.
        kind: `crash` or `hang`.

    Returns:
        The program of the smallest case.
    """
    from fuzz.generate import make
    from fuzz.shrink import shrink

    case = make(asked.seed, number, asked.only)
    if case is None:
        return ""

    def shows(candidate: Any) -> bool:
        # In bytes, as otherwise PyTorch would move tensors to shared memory.
        with closing(Worker("fuzz.worker:probe", pickle.dumps(candidate))) as worker:
            try:
                return worker.receive(PROBE_SECONDS)
            except DiedError as died:
                # A positive status is an exception's.
                return died.kind == kind and died.status < 0

    return shrink(case, shows, PROCESS_FACTOR * asked.shrink if kind == "crash" else 0).code()
