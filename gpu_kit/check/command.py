"""The command line of ``gpu_check.py``."""

import argparse
import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpu_kit.check import record
from gpu_kit.check.budget import Budget
from gpu_kit.check.commands import CommandPart
from gpu_kit.check.context import Context
from gpu_kit.check.environment import complaint_about_torch, prepare
from gpu_kit.check.page import page_of
from gpu_kit.check.parts import PARTS
from gpu_kit.check.record import Part, Report, ReportError
from gpu_kit.check.testing import TestPart

DESCRIPTION = """\
Checks within a given time what works on an OpenCL device, and how fast. Writes report.json, page.md and log.txt into
the folder; they are complete at any time, also after Ctrl-C or a crash. The exit status is 0 if all parts that were run
have passed, 1 if not, 2 if it could not begin, 130 if it was interrupted.
"""
INTERRUPTED = 130
# Parts without which no other can pass.
NEEDED = ("self-test",)


def main(root: Path, arguments: Sequence[str] | None = None, parts: Sequence[CommandPart | TestPart] = PARTS) -> int:
    """Run the parts within the time.

    Args:
        root: the kit's folder.
        arguments: the command line without the program's name; ``sys.argv`` by default.
        parts: the parts to run.

    Returns:
        The exit code.
    """
    options = _parse(arguments, [part.name for part in parts])
    budget = Budget(options.minutes * 60)
    kit = json.loads((root / "kit.json").read_text())
    if complaint := complaint_about_torch(kit["torch"]):
        print(f"error: {complaint}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        report = record.load(options.out, kit) if options.resume else Report(kit=kit, started=record.now())
    except ReportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    work = _work_folder(options.work, options.out)
    if not options.resume:
        # Files of an earlier run, above all compiled kernels, would make this one look fast.
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment, report.notes = prepare(root, work, options.device, os.environ)
    report.minutes.append(options.minutes)
    report.parts = {part.name: report.parts.get(part.name) or Part(title=part.title) for part in parts}

    def save() -> None:
        report.updated = record.now()
        record.store(report, options.out, page_of(report))

    context = Context(
        root=root,
        work=work,
        log=options.out / record.LOG_NAME,
        environment=environment,
        jobs=options.jobs,
        patience=options.patience,
        save=save,
        accelerator=lambda: _accelerator(report),
    )
    chosen = [part for part in parts if not options.only or part.name in options.only]
    return _run(chosen, report, context, budget)


def _run(parts: Sequence[CommandPart | TestPart], report: Report, context: Context, budget: Budget) -> int:
    """Run the parts that are not finished, in order; return the exit code."""
    report.state = "running"
    try:
        with _termination_is_an_interruption():
            for index, part in enumerate(parts):
                entry = report.parts[part.name]
                later = [other.weight for other in parts[index + 1 :] if not report.parts[other.name].finished]
                if not entry.finished and budget.left() >= max(1, part.least / 2):
                    _run_part(part, entry, context, budget.share(part.weight, later, part.least))
                    report.device = _device_name(report)
                if part.name in NEEDED and _has_no_device(report, entry):
                    report.notes.append(f"No other part can run without a device.{_choice(context.environment)}")
                    report.device = None
                    # Once there is a device, --resume continues from here.
                    entry.finished = False
                    break
    except KeyboardInterrupt:
        report.state = "interrupted"
        for entry in report.parts.values():
            if entry.status == "running":
                entry.status = "cut"
        context.save()
        print(f"\nInterrupted; {context.log.with_name(record.PAGE_NAME)} has the results. --resume continues.")
        return INTERRUPTED
    report.state = "ended"
    context.save()
    print(f"\nPage: {context.log.with_name(record.PAGE_NAME)}")
    return 0 if report.good else 1


def _run_part(part: CommandPart | TestPart, entry: Part, context: Context, seconds: float) -> None:
    print(f"{part.title}, {seconds:.0f} s at most ... ", end="", flush=True)
    entry.status = "running"
    context.save()
    start = time.monotonic()
    try:
        part.run(context, entry, seconds)
    finally:
        entry.seconds += time.monotonic() - start
    context.save()
    print(f"{entry.status}: {entry.summary} ({time.monotonic() - start:.0f} s)", flush=True)


@contextlib.contextmanager
def _termination_is_an_interruption() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _accelerator(report: Report) -> str:
    """Return the name of the vendor's device in PyTorch, "none" if there is none or it does not work."""
    entry = report.parts.get("info")
    vendor = (entry.data if entry else None) or {}
    found = vendor.get("vendor", {})
    return found.get("accelerator", "none") if found.get("works") else "none"


def _has_no_device(report: Report, needed: Part) -> bool:
    """Return True if a part that needs a device has found none, or was cut and the drivers had reported none."""
    if (needed.data or {}).get("devices"):
        return False
    info = report.parts.get("info")
    return needed.status in record.BAD or bool(needed.status == "cut" and info and info.errors and not info.finished)


def _choice(environment: Mapping[str, str]) -> str:
    """Return a sentence about the requested device, if any."""
    if "TORCH_OPENCL_DEVICES" in os.environ:
        return f" TORCH_OPENCL_DEVICES={os.environ['TORCH_OPENCL_DEVICES']} was set."
    chosen = environment.get("TORCH_OPENCL_DEVICES")
    return f" opencl:{chosen} was requested (--device)." if chosen else ""


def _device_name(report: Report) -> str | None:
    """Return the device's name from the self-test; before it has run, the names from the drivers."""
    tested, asked = ((entry.data if entry else None) or {} for entry in map(report.parts.get, ("self-test", "info")))
    if devices := tested.get("devices"):
        return devices[0]["name"]
    names = [device["name"] for platform in asked.get("platforms", ()) for device in platform["devices"]]
    return " or ".join(names) or report.device


def _parse(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_check.py", description=DESCRIPTION)
    parser.add_argument("--minutes", type=float, default=8, help="time for everything (default 8)")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="folder for the report (default gpu-check)")
    parser.add_argument("--device", type=_device, help="such as opencl:1; the first one by default")
    parser.add_argument("--resume", action="store_true", help="continue the report in the folder")
    parser.add_argument("--only", nargs="+", choices=names, metavar="PART", help=f"of {', '.join(names)}")
    parser.add_argument("--jobs", type=int, default=_jobs(), help="test processes at a time (default %(default)s)")
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds without progress after which a process hangs (default 120)"
    )
    parser.add_argument(
        "--work",
        type=Path,
        help="parent of the folder for caches, which is kept for --resume (default: the folder for temporary files)",
    )
    options = parser.parse_args(arguments)
    if not (0 < options.minutes < math.inf and 0 < options.patience < math.inf and options.jobs >= 1):
        parser.error("--minutes and --patience must be more than 0 and finite, --jobs at least 1")
    if options.device is not None and os.environ.get("TORCH_OPENCL_DEVICES"):
        parser.error("--device and TORCH_OPENCL_DEVICES both choose: use one")
    options.out = options.out.resolve()
    return options


def _device(text: str) -> int:
    match = re.fullmatch(r"(?:opencl:)?(\d+)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r}: expected such as opencl:1")
    return int(match[1])


def _jobs() -> int:
    return max(1, min(8, (os.cpu_count() or 1) // 2))


def _work_folder(parent: Path | None, out: Path) -> Path:
    """Return a folder that only the check uses, a different one for each report."""
    name = hashlib.sha256(str(out).encode()).hexdigest()[:12]
    return Path(parent or tempfile.gettempdir(), f"gpu-check-{os.getuid()}-{name}").resolve()
