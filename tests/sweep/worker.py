"""The worker process, which checks pairs and may crash in one: each input line is a pair, and it answers with lines."""

import os
import warnings

import torch
from watched import Channel

from sweep.judge import computed_by, judge
from sweep.pairs import parse
from sweep.subjects import subject
from sweep.timing import measure


def work(threads: int) -> None:
    """Check pairs until there are no more.

    Args:
        threads: the number of threads of the CPU backend.
    """
    channel = Channel()
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    channel.say(ready=True)
    while (job := channel.heard()) is not None:
        _check(channel, job["pair"], set(job["done"]))
    # Skips the driver's own exit handlers, which may take long.
    os._exit(0)


def _check(channel: Channel, name: str, done: set[str]) -> None:
    """Run the unfinished checks of a pair, and report each result."""
    torch.manual_seed(0)
    given = subject(parse(name))
    channel.say(checks=list(given.checks))
    for check in given.checks:
        if check in done:
            continue
        channel.say(start=check)
        verdict = judge(given, check, lambda device: channel.say(device=device))
        channel.say(
            check=check,
            kind=verdict.kind,
            text=verdict.text,
            case=verdict.case,
            cases=verdict.cases,
            fallbacks=sorted(verdict.fallbacks),
            operators=sorted(verdict.operators),
            computed_by=computed_by(given, verdict.operators) if verdict.operators else "",
        )
        if check == "forward" and verdict.kind == "right" and not verdict.fallbacks:
            channel.say(seconds=measure(given))
    channel.say(end=name)
