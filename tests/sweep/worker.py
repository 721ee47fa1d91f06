"""The worker process, which checks pairs and may crash in one: it receives pairs, and sends results."""

import warnings
from multiprocessing.connection import Connection

import torch

from sweep.judge import computed_by, judge
from sweep.pairs import parse
from sweep.subjects import subject
from sweep.timing import measure


def work(channel: Connection, threads: int) -> None:
    """Check pairs until the runner ends.

    Args:
        channel: the connection to the runner.
        threads: the number of threads of the CPU backend.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    channel.send("ready")
    while True:
        _check(channel, *channel.recv())


def _check(channel: Connection, name: str, done: set[str]) -> None:
    """Run the unfinished checks of a pair, and report each result."""
    torch.manual_seed(0)
    given = subject(parse(name))
    channel.send({"checks": list(given.checks)})
    for check in given.checks:
        if check in done:
            continue
        channel.send({"start": check})
        verdict = judge(given, check, lambda device: channel.send({"device": device}))
        result = {
            "check": check,
            "kind": verdict.kind,
            "text": verdict.text,
            "case": verdict.case,
            "cases": verdict.cases,
            "fallbacks": sorted(verdict.fallbacks),
            "operators": sorted(verdict.operators),
            "computed_by": computed_by(given, verdict.operators) if verdict.operators else "",
        }
        channel.send(result)
        if check == "forward" and verdict.kind == "right" and not verdict.fallbacks:
            channel.send({"seconds": measure(given)})
    channel.send({"end": name})
