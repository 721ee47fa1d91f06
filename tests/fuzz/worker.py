"""The worker process, which runs cases and may crash in one. It reports progress on its output, one JSON line each."""

import pickle
import time
from argparse import Namespace
from pathlib import Path

from watched import Channel

from fuzz.case import Case
from fuzz.generate import make
from fuzz.oracle import judge
from fuzz.shrink import shrink


def work(asked: Namespace, seen: set[str]) -> None:
    """Run cases until time is up or there are enough.

    Args:
        asked: the command line: the seed, the first case, the time limit and the options.
        seen: keys of findings that need no shrinking.
    """
    channel = Channel()
    until = time.monotonic() + asked.seconds
    number = asked.worker
    while time.monotonic() < until and number < asked.cases:
        channel.say(start=number)
        case = make(asked.seed, number, asked.only)
        if case is not None:
            channel.say(name=case.name)
            examine(channel, case, number, seen, asked.shrink)
        number += 1
    channel.say(end=number)


def examine(channel: Channel, case: Case, number: int, seen: set[str], patience: float) -> None:
    """Run a case, and report what is wrong to the runner.

    Args:
        channel: the connection to the runner.
        case: the case.
        number: its number.
        seen: keys of findings that need no shrinking; this one's is added.
        patience: seconds for shrinking.
    """
    finding = judge(case, lambda device: channel.say(device=device))
    if finding is None:
        return
    key = f"{case.name} {finding.kind}"
    if key in seen:
        channel.say(found=number, key=key, text=finding.text, code="")
        return
    seen.add(key)

    def shows(candidate: Case) -> bool:
        other = judge(candidate)
        return other is not None and other.kind == finding.kind

    channel.say(shrinking=number)
    small = shrink(case, shows, patience)
    last = judge(small) or finding
    channel.say(found=number, key=key, text=last.text, code=small.code())


def probe(path: Path) -> None:
    """Run one case from a file: the exit status tells whether it ends the process.

    Args:
        path: a pickled case.
    """
    judge(pickle.loads(path.read_bytes()))
