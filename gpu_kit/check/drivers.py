"""The OpenCL drivers of the machine, each queried in a separate process, to identify one that crashes or hangs.

``python -m gpu_kit.check.drivers [LIBRARY]`` is such a process: it prints the platforms and devices as JSON.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.opencl import Loader, OpenCLError
from gpu_kit.check.environment import CHOICES, REGISTRY
from gpu_kit.check.process import signal_name

COMMAND = ("-m", "gpu_kit.check.drivers")
# At first use a driver may read its compiler from a slow disk and wake up the device.
SECONDS, SECONDS_ALONE = 30, 15
LONGEST_TEXT = 300


def platforms() -> list[dict[str, Any]] | str:
    """Return all platforms with their devices' properties, or a message about why the drivers do not answer."""
    found = answer(COMMAND, {}, SECONDS)
    return found.get("platforms", f"The drivers do not list their devices: {found.get('error')}.")


def drivers() -> Iterator[dict[str, Any]]:
    """Yield for each registered driver its ``file`` in the registry, its ``library``, its number of ``devices``, and
    what it ``says``: their names, or an error.
    """
    folder = registry()
    if folder is None:
        for name in filter(os.environ.get, CHOICES):
            says = "this variable chooses the driver; registered drivers are ignored"
            yield {"file": name, "library": os.environ[name], "devices": 0, "says": says}
        return
    for path in sorted(folder.glob("*")):
        library, wrong = library_of(path)
        found = {"error": wrong} if wrong else answer([*COMMAND, library], alone(library), SECONDS_ALONE)
        names = [device["name"] for platform in found.get("platforms", ()) for device in platform["devices"]]
        says = found.get("error") or "; ".join(names) or "no device"
        yield {"file": str(path), "library": library, "devices": len(names), "says": says}


def registry() -> Path | None:
    """Return the folder whose files name the drivers, or None if variables name a driver."""
    chosen = [Path(os.environ[name]) for name in CHOICES if os.environ.get(name)]
    return next(filter(Path.is_dir, chosen), None if chosen else REGISTRY)


def library_of(path: Path) -> tuple[str, str]:
    """Read which library a file of the registry names.

    Args:
        path: the file.

    Returns:
        The library, and an error message about the file; one of them is empty.
    """
    if path.suffix != ".icd":
        return "", "not read by OpenCL loaders, because its name does not end with .icd"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        return "", "not a text file"
    except OSError as error:
        return "", f"cannot be read: {error.strerror}"
    library = lines[0].strip().replace("\0", "?")
    return library, "" if library else "empty: it names no library"


def alone(library: str) -> dict[str, str]:
    """Return the variables that make OpenCL loaders use only one driver."""
    # The first is read by ocl-icd, the second by the Khronos loader.
    return {"OCL_ICD_VENDORS": library, "OCL_ICD_FILENAMES": library}


def answer(arguments: Sequence[str], variables: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """Return the JSON that a Python process prints as its last line, or a message under the key "error".

    Args:
        arguments: of the process.
        variables: added to this process's.
        seconds: its time limit.
    """
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {seconds} s"}
    except (ValueError, IndexError):
        code = done.returncode
        ending = f"ended by {signal_name(-code)}" if code < 0 else f"exit status {code}"
        last = " ".join(done.stderr.split())[-LONGEST_TEXT:]
        return {"error": f"{ending}: {last}" if last else ending}


def _ask() -> list[dict[str, Any]]:
    return [
        {"name": name, "version": version, "devices": [device.properties() for device in devices]}
        for name, version, devices in Loader().platforms()
    ]


if __name__ == "__main__":
    try:
        # Loaders silently skip libraries that cannot be loaded.
        for library in sys.argv[1:]:
            ctypes.CDLL(library)
        result = {"platforms": _ask()}
    except OSError as error:
        result = {"error": f"cannot be loaded: {error}"}
    except OpenCLError as error:
        result = {"error": str(error)}
    print(json.dumps(result))
