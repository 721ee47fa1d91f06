"""The measurements on a device so far, in a file that native code and people can read."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch_opencl._load import native

Values = dict[str, int]


@dataclass
class Record:
    """The content of a device's file, without its header.

    Native code reads ``values`` and the header, which identifies the device.

    Attributes:
        values: the parameters to use.
        defaults: the parameters that devices of its class start with.
        finished: ``"quick"`` or ``"full"``: the most thorough finished run; None without one.
        speedup: of the parameters of a finished run relative to the defaults, for each kind of work.
        trials: all comparisons, with keys ``"candidate / other"``: the candidate's speedup for each kind of work, or
            ``"failed"`` and the reason.
        trying: the comparison in progress. If a new process finds one, the process that made it died of it.
    """

    values: Values
    defaults: Values
    finished: str | None = None
    speedup: dict[str, float] = field(default_factory=dict)
    trials: dict[str, dict[str, Any]] = field(default_factory=dict)
    trying: str | None = None


def recorded(device: int) -> Record | None:
    """Return the content of a device's file.

    Args:
        device: index of the device.

    Returns:
        The record; None without a valid file, or if it was measured against other defaults.

    Raises:
        RuntimeError: there is no such device.
    """
    state = json.loads(native().tuning(device))
    try:
        content = json.loads(native().read_tuning(device))
        if any(content[name] != value for name, value in state["header"].items()):
            return None
        record = Record(**{name: content[name] for name in Record.__dataclass_fields__})
        if record.defaults != state["defaults"]:
            return None
        record.values = {name: int(record.values[name]) for name in record.defaults}
        record.trials = {name: _trial(trial) for name, trial in record.trials.items()}
        record.speedup = _trial(record.speedup)
        if not isinstance(record.trying, str | None) or not isinstance(record.finished, str | None):
            return None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return record


def _trial(trial: dict[str, Any]) -> dict[str, Any]:
    """Return a trial after validating it; raise ValueError if it is invalid."""
    if not all(isinstance(ratio, str) if name == "failed" else float(ratio) > 0 for name, ratio in trial.items()):
        raise ValueError("a ratio is not a positive number")
    return trial


def store(device: int, record: Record) -> None:
    """Write a device's file atomically: other processes see the old one or the new one.

    Args:
        device: index of the device.
        record: its content.

    Raises:
        RuntimeError: nothing is kept on disk, or the file cannot be written.
    """
    file_of(device)
    header = json.loads(native().tuning(device))["header"]
    native().store_tuning(device, json.dumps({**header, **asdict(record)}, indent=2) + "\n")


def file_of(device: int) -> Path:
    """Return the path of a device's file, which need not exist.

    Args:
        device: index of the device.

    Returns:
        The path.

    Raises:
        RuntimeError: there is no such device, or nothing is kept on disk.
    """
    path = json.loads(native().tuning(device))["path"]
    if path is None:
        raise RuntimeError(
            "OpenCL: there is no folder to keep a tuning in: TORCH_OPENCL_CACHE_DIR is empty, or there is no home, or "
            "the folder is open to other users. Set TORCH_OPENCL_CACHE_DIR to a folder that only you can access."
        )
    return Path(path)


@contextlib.contextmanager
def alone(device: int) -> Iterator[None]:
    """Lock out other tuning processes on this machine, which would disturb the measurements.

    Args:
        device: index of the device.

    Yields:
        Nothing.

    Raises:
        RuntimeError: another process is tuning, or nothing is kept on disk, or the folder cannot be made.
    """
    folder = file_of(device).parent
    native().store_tuning(device, "")
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"OpenCL: another process is tuning; it has locked {folder}") from None
        yield
    finally:
        os.close(handle)
