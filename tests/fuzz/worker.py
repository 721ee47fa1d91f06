"""The worker process, which runs cases, may crash in one, and sends its progress."""

import pickle
import time
from argparse import Namespace
from multiprocessing.connection import Connection

from fuzz.case import Case
from fuzz.generate import make
from fuzz.oracle import judge
from fuzz.shrink import shrink


def work(channel: Connection, asked: Namespace, number: int, seconds: float, seen: set[str]) -> None:
    """Run cases until time is up or there are enough.

    Args:
        channel: the connection to the runner.
        asked: the command line.
        number: the first case.
        seconds: the time limit.
        seen: keys of findings that need no shrinking.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until and number < asked.cases:
        channel.send({"start": number})
        case = make(asked.seed, number, asked.only)
        if case is not None:
            channel.send({"name": case.name})
            examine(channel, case, number, seen, asked.shrink)
        number += 1
    channel.send({"end": number})


def examine(channel: Connection, case: Case, number: int, seen: set[str], patience: float) -> None:
    """Run a case, and report what is wrong to the runner.

    Args:
        channel: the connection to the runner.
        case: the case.
        number: its number.
        seen: keys of findings that need no shrinking; this one's is added.
        patience: seconds for shrinking.
    """
    finding = judge(case, lambda device: channel.send({"device": device}))
    if finding is None:
        return
    key = f"{case.name} {finding.kind}"
    if key in seen:
        channel.send({"found": number, "key": key, "text": finding.text, "code": ""})
        return
    seen.add(key)

    def shows(candidate: Case) -> bool:
        other = judge(candidate)
        return other is not None and other.kind == finding.kind

    channel.send({"shrinking": number})
    small = shrink(case, shows, patience)
    last = judge(small) or finding
    channel.send({"found": number, "key": key, "text": last.text, "code": small.code()})


def probe(channel: Connection, case: bytes) -> None:
    """Run a pickled case, and send that it does not end the process."""
    judge(pickle.loads(case))
    channel.send(False)
