"""The worker process, which runs tests and may crash in one: it receives names, and sends results.

It is an ordinary run of pytest with another loop over the tests, like the workers of pytest-xdist.
"""

import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from upstream import compiler, older

# By the device's name in test names: the suffixes of test classes. PyTorch learns the device's name when it creates the
# first of them.
SUFFIXES = {
    "opencl": ("PRIVATEUSE1", "OPENCL", *compiler.SUFFIXES["opencl"]),
    "cpu": ("CPU", *compiler.SUFFIXES["cpu"]),
}
TEXT = 300


class Loop:
    """A pytest plugin that runs the requested tests, in the order of the requests."""

    def __init__(self, channel: Connection, device: str) -> None:
        self.channel = channel
        self.device = device
        self.reports: list[pytest.TestReport] = []
        self.refusal = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record an import error of a file."""
        if report.failed:
            self.refusal = str(report.longrepr).strip().splitlines()[-1][:TEXT]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the result of a part of a test: its setup, the test, a sub-test or its teardown."""
        self.reports.append(report)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the requested tests, until the runner ends."""
        items = {key(item, self.device): item for item in session.items if is_of(item, self.device)}
        for module in {item.module for item in items.values()}:
            compiler.adopt(module)
        self.channel.send((list(items), self.refusal))
        while True:
            item = items.get(self.channel.recv())
            if item is None:
                self.channel.send({"outcome": "missing", "text": "no such test for this device"})
                continue
            self.reports.clear()
            torch.opencl.reset_fallbacks()
            start = time.perf_counter()
            # Like the last test: fixtures of its class or file are torn down before the answer.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            outcome, text = summarised(self.reports)
            error = late_error()
            if error and outcome == "passed":
                outcome, text = "failed", error
            result = {
                "outcome": outcome,
                "text": text,
                "seconds": round(time.perf_counter() - start, 3),
                "fallbacks": sorted(torch.opencl.fallbacks()),
            }
            self.channel.send(result)


def late_error() -> str:
    """Wait for the device, so that an error of one test is not raised in the next.

    Returns:
        The error that a kernel reported and the test did not raise; empty if there is none.
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
        False for tests of another device, and for tests without a device.
    """
    return item.cls is not None and item.cls.__name__.endswith(SUFFIXES[device]) and f"_{device}" in item.name


def key(item: pytest.Item, device: str) -> str:
    """Name a test equally for all devices.

    Args:
        item: the test.
        device: the device that it was made for.

    Returns:
        Class and test, without the device.
    """
    before, _, after = item.name.rpartition(f"_{device}")
    name = item.cls.__name__
    for suffix in SUFFIXES[device]:
        name = name.removesuffix(suffix)
    # A class name that consists only of the device suffix.
    return f"{name or 'Tests'}::{before}{after}"


def summarised(reports: list[pytest.TestReport]) -> tuple[str, str]:
    """Combine the outcomes of a test's parts.

    Args:
        reports: the reports of the parts.

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


def work(channel: Connection, folder: Path, name: str, device: str) -> None:
    """Collect a file's tests, and run those that are asked for.

    Args:
        channel: the connection to the runner.
        folder: PyTorch's tests.
        name: the file in it.
        device: `opencl` or `cpu`.
    """
    file = folder / name
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    # PyTorch's helpers read the command line on import.
    sys.argv = [str(file)]
    older.provide()
    if compiler.is_of_compiler(file):
        compiler.provide(device)
    arguments: list[Any] = [str(file), "-q", "-c", os.devnull, f"--rootdir={file.parent}", "--noconftest"]
    pytest.main([*arguments, "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[Loop(channel, device)])
