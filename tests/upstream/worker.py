"""The process that runs tests, and may die of one: each line of its input is a test, and it answers with lines.

It is an ordinary run of pytest whose loop over the tests is replaced, as that of pytest-xdist's workers is.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from watched import Channel

from upstream import compiler, older

# By a device's name in those of tests: how the names of test classes for it end. PyTorch learns what the device is
# called when it makes the first of them.
SUFFIXES = {
    "opencl": ("PRIVATEUSE1", "OPENCL", *compiler.SUFFIXES["opencl"]),
    "cpu": ("CPU", *compiler.SUFFIXES["cpu"]),
}
TEXT = 300


class Loop:
    """A plugin of pytest: runs the tests that it is told to, in the order in which it is told."""

    def __init__(self, channel: Channel, device: str) -> None:
        self.channel = channel
        self.device = device
        self.reports: list[pytest.TestReport] = []
        self.refusal = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note why a file cannot be imported."""
        if report.failed:
            self.refusal = str(report.longrepr).strip().splitlines()[-1][:TEXT]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a part of a test gave: its setup, the test, a sub-test or its teardown."""
        self.reports.append(report)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests that are asked for, until there are no more."""
        items = {key(item, self.device): item for item in session.items if is_of(item, self.device)}
        for module in {item.module for item in items.values()}:
            compiler.adopt(module)
        self.channel.say(tests=list(items), refusal=self.refusal)
        while (job := self.channel.heard()) is not None:
            if job["test"] not in items:
                self.channel.say(outcome="missing", text="there is no such test for this device")
                continue
            self.reports.clear()
            torch.opencl.reset_fallbacks()
            start = time.perf_counter()
            item = items[job["test"]]
            # As if it were the last one: what its class or file has set up is taken down before the answer.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            outcome, text = summarised(self.reports)
            error = late_error()
            if error and outcome == "passed":
                outcome, text = "failed", error
            self.channel.say(
                outcome=outcome,
                text=text,
                seconds=round(time.perf_counter() - start, 3),
                fallbacks=sorted(torch.opencl.fallbacks()),
            )
        os._exit(0)


def late_error() -> str:
    """Wait for the device, so that no test meets the errors of an earlier one.

    Returns:
        The error that a kernel reports and nobody has read; nothing if there is none.
    """
    try:
        torch.opencl.synchronize()
    except Exception as error:
        return f"an error that the test does not read: {error}"[:TEXT]
    return ""


def is_of(item: pytest.Item, device: str) -> bool:
    """Return true if a test was made for a device.

    Args:
        item: the test.
        device: `opencl` or `cpu`.

    Returns:
        False for tests of another device, and those of none.
    """
    return item.cls is not None and item.cls.__name__.endswith(SUFFIXES[device]) and f"_{device}" in item.name


def key(item: pytest.Item, device: str) -> str:
    """Name a test alike for all devices.

    Args:
        item: the test.
        device: that it was made for.

    Returns:
        Class and test, without the device.
    """
    before, _, after = item.name.rpartition(f"_{device}")
    name = item.cls.__name__
    for suffix in SUFFIXES[device]:
        name = name.removesuffix(suffix)
    # Of a class that is named by the device alone.
    return f"{name or 'Tests'}::{before}{after}"


def summarised(reports: list[pytest.TestReport]) -> tuple[str, str]:
    """Make one outcome of those of a test's parts.

    Args:
        reports: of the parts.

    Returns:
        `failed`, `skipped` or `passed`, and the last line of the error or the reason.
    """
    failed = next((report for report in reports if report.failed), None)
    if failed is not None:
        crash = getattr(failed.longrepr, "reprcrash", None)
        text = crash.message if crash else str(failed.longrepr)
        return "failed", " ".join(text.split())[:TEXT]
    skipped = next((report for report in reports if report.skipped), None)
    if skipped is not None:
        reason = skipped.longrepr[2] if isinstance(skipped.longrepr, tuple) else getattr(skipped, "wasxfail", "")
        return "skipped", " ".join(str(reason).split())[:TEXT]
    return "passed", ""


def work(file: Path, device: str) -> None:
    """Collect a file's tests, and run those that are asked for.

    Args:
        file: of PyTorch.
        device: `opencl` or `cpu`.
    """
    channel = Channel()
    # PyTorch's helpers read the command line when they are imported.
    sys.argv = [str(file)]
    older.provide()
    if compiler.is_of_compiler(file):
        compiler.provide(device)
    arguments: list[Any] = [str(file), "-q", "-c", os.devnull, f"--rootdir={file.parent}", "--noconftest"]
    pytest.main([*arguments, "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[Loop(channel, device)])
