"""The process that checks pairs, and may die of one: each line of its input is a pair, and it answers with lines."""

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
        threads: how many the CPU backend may use.
    """
    channel = Channel()
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    channel.say(ready=True)
    while (job := channel.heard()) is not None:
        _check(channel, job["pair"], set(job["done"]))
    # Not through the driver's own end, which may take long.
    os._exit(0)


def _check(channel: Channel, name: str, done: set[str]) -> None:
    """Run the checks of a pair that are not done, and say what each gives."""
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
