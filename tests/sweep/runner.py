"""Assigns pairs to workers, restarts them after crashes and hangs, and reports findings."""

import argparse
import os
from pathlib import Path

from journal import Journal
from process_runner import CONTEXT, Crew, DiedError, Worker

from sweep import page
from sweep.results import Record

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "target" / "sweep" / "results.jsonl"
# Time limits in seconds for a call, which may compile many kernels, and for the start of a worker on a busy machine.
HANG_SECONDS = 240.0
START_SECONDS = 600.0


def main() -> int:
    """Run the program.

    Returns:
        The exit status: 1 if there are findings that tests/sweep/known.py does not explain.
    """
    parser = argparse.ArgumentParser(prog="tests/sweep", description=__doc__)
    parser.add_argument("words", nargs="*", help="kinds (op, module, optim), dtypes, patterns of names")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--hang", type=float, default=HANG_SECONDS, help="seconds after which a call hangs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop then; another run continues")
    parser.add_argument("--sample", type=int, help="the number of pairs, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0, help="which pairs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results, to which runs append")
    parser.add_argument("--again", action="store_true", help="check pairs again that have a result")
    parser.add_argument("--findings", action="store_true", help="check pairs again that were not right or fell back")
    parser.add_argument("--keep", action="store_true", help="continue with results of another build of the library")
    parser.add_argument("--summary", action="store_true", help="check nothing, only print the summary")
    parser.add_argument("--page", action="store_true", help="write the measured part of docs/coverage.md")
    parser.add_argument("--table", type=Path, help="only write this file into docs/coverage.md, as its generated part")
    parser.add_argument("--planted", help=argparse.SUPPRESS)
    asked = parser.parse_intermixed_args()
    if asked.table:
        page.write_table(asked.table)
        return 0
    return supervise(asked)


def supervise(asked: argparse.Namespace) -> int:
    """Check pairs in workers.

    Args:
        asked: the command line.

    Returns:
        The exit status.
    """
    from sweep import pairs, summary

    every = pairs.planted_pairs(asked.planted.split(",")) if asked.planted else pairs.every_pair()
    wanted = [str(pair) for pair in pairs.chosen(every, asked.words, asked.sample, asked.seed)]
    journal = Journal(asked.results, keeps=asked.keep or asked.findings or asked.summary)
    records = {entry["pair"]: Record(**entry) for entry in journal.entries}

    def done(record: Record) -> str:
        records[record.pair] = record
        journal.add(vars(record))
        return "{1}: {pair} {0}".format(*record.findings[0], pair=record.pair) if record.findings else ""

    if not asked.summary:
        CONTEXT.set_forkserver_preload(["torch"])
        crew = Crew(lambda: start(asked), lambda *job: serve(asked, *job), done, asked.jobs, asked.seconds, "pair")
        crew.work([Record(pair) for pair in wanted if _is_due(asked, records.get(pair))])
    chosen = [records[pair] for pair in wanted if pair in records]
    print(*summary.lines(chosen), sep="\n")
    if left := len(wanted) - len(chosen):
        print(f"{left} pairs are left: run the same command to continue")
    if asked.page:
        page.write_measured(records.values())
    return 1 if summary.unexpected(chosen) else 0


def _is_due(asked: argparse.Namespace, record: Record | None) -> bool:
    """Return true if this run has to check a pair."""
    if record is None or asked.again:
        return True
    return asked.findings and bool(record.findings or record.fallbacks)


def start(asked: argparse.Namespace) -> Worker:
    """Start a worker.

    Args:
        asked: the command line.

    Returns:
        The worker, ready.
    """
    worker = Worker("sweep.worker:work", max(1, (os.cpu_count() or 1) // asked.jobs))
    worker.receive(START_SECONDS)
    return worker


def serve(asked: argparse.Namespace, worker: Worker, record: Record) -> bool:
    """Let a worker check a pair, as far as possible.

    Args:
        asked: the command line.
        worker: the worker.
        record: the pair, and the finished checks; new ones are added.

    Returns:
        True if the worker has ended and checks are left.
    """
    worker.send((record.pair, set(record.checks)))
    checks: list[str] = []
    check, device = "", "cpu"
    try:
        while "end" not in (line := worker.receive(asked.hang)):
            checks = line.get("checks", checks)
            check, device = line.get("start", check), line.get("device", device)
            if "kind" in line:
                record.checks[line.pop("check")] = line
            if "seconds" in line:
                record.seconds = line["seconds"]
        return False
    except DiedError as died:
        kind, text = died.kind, str(died)
    if not check:
        # Before the first check: the pair cannot be checked at all.
        check, checks = "samples", ["samples"]
    elif check in record.checks:
        # After the check: during the measurement of its time.
        check = "time"
    if device == "cpu":
        kind, text = "cpu crash", f"PyTorch's CPU backend: {text}"
    record.checks[check] = {"kind": kind, "text": text}
    return any(name not in record.checks for name in checks)
