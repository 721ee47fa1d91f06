"""``python -m torch_opencl.tune``: makes matmuls and convolutions fast on a device, by measurement.

It can be interrupted, and continues at that point when it is started again. The exit status is 0 if it has finished, 1
after an error, 130 if it was interrupted.
"""

import argparse
import json
import sys
from collections.abc import Iterator

from torch_opencl._lazy import _lazy_init, device_count
from torch_opencl._load import native
from torch_opencl._utils import _check_index
from torch_opencl.device import get_device_name
from torch_opencl.tune import recorded, tune
from torch_opencl.tune.record import Record, alone, file_of
from torch_opencl.tune.search import mean


def main(arguments: list[str] | None = None) -> int:
    """Tune a device, or show the results.

    Args:
        arguments: the command line without the program's name; ``sys.argv`` by default.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m torch_opencl.tune", description=__doc__)
    parser.add_argument("--device", default="opencl", help='such as "opencl:1" or "1"; the first one by default')
    parser.add_argument("--quick", action="store_true", help="try only the candidates that differ most")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="list the devices and whether they have been tuned")
    action.add_argument("--show", action="store_true", help="show the parameters of a device and their speedup")
    action.add_argument("--reset", action="store_true", help="delete the results for a device")
    options = parser.parse_args(arguments)
    try:
        _lazy_init()
        if options.list:
            print("\n".join(_summary(index) for index in range(device_count())))
            return 0
        device = _check_index(int(options.device) if options.device.isdecimal() else options.device)
        if options.reset:
            print(_reset(device))
            return 0
        if not options.show:
            print(f"Tuning {_name(device)}: you can interrupt this; the next run continues.", file=sys.stderr)
            tune(device, options.quick)
        print("\n".join(_report(device)))
    except KeyboardInterrupt:
        print("\nInterrupted. The measurements are kept: start again to continue.", file=sys.stderr)
        return 130
    except (RuntimeError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _name(device: int) -> str:
    return f"opencl:{device} ({get_device_name(device)})"


def _summary(device: int) -> str:
    return f"{_name(device)}: {_status(recorded(device))}"


def _status(record: Record | None) -> str:
    if record is None:
        return "not tuned"
    if record.finished is None:
        return f"interrupted after {len(record.trials)} comparisons"
    return f"tuned ({record.finished}), {mean(record.speedup):.2f} times the speed of the defaults"


def _report(device: int) -> Iterator[str]:
    """Yield the values that a device uses, next to its defaults."""
    state, record = json.loads(native().tuning(device)), recorded(device)
    yield _summary(device)
    yield f"file: {state['path'] or 'none, because TORCH_OPENCL_CACHE_DIR is empty or there is no home'}"
    for name, value in state["values"].items():
        default = state["defaults"][name]
        yield f"  {name} = {value}" + (f" (default {default})" if value != default else "")
    for work, ratio in (record.speedup if record else {}).items():
        yield f"  {ratio:.2f} times the speed: {work}"


def _reset(device: int) -> str:
    path = file_of(device)
    if not path.exists():
        return f"{_name(device)}: there are no results"
    with alone(device):
        path.unlink(missing_ok=True)
    return f"{_name(device)}: results deleted"


if __name__ == "__main__":
    sys.exit(main())
