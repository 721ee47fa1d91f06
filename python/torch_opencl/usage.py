"""Usage of a device, as the operating system reports it: only for devices that are the host's processor."""

import time
from pathlib import Path

from torch_opencl._utils import DeviceLike, _get_device_index
from torch_opencl.device import get_device_properties

__all__ = ["clock_rate", "device_memory_used", "memory_usage", "utilization"]

# Seconds between two readings of the processors' counters, which the kernel advances 100 times a second.
_SAMPLE = 0.1


def utilization(device: DeviceLike = None) -> int:
    """Return how busy all processes keep a device during the tenth of a second that this call waits.

    Args:
        device: the device; the current one by default.

    Returns:
        Percent of the time of its compute units.

    Raises:
        RuntimeError: the operating system does not report it, or there is no such device.
    """
    _require_host_processor(device, "how busy it is")
    idle, total = _processor_times()
    time.sleep(_SAMPLE)
    idle_then, total_then = _processor_times()
    passed = total_then - total
    return round(100 * (1 - (idle_then - idle) / passed)) if passed else 0


def memory_usage(device: DeviceLike = None) -> int:
    """Return how much of a device's memory all processes use.

    ``torch.cuda.memory_usage`` returns the share of time in which memory was read or written, which no system reports
    for host memory.

    Args:
        device: the device; the current one by default.

    Returns:
        Percent of the memory.

    Raises:
        RuntimeError: the operating system does not report it, or there is no such device.
    """
    _require_host_processor(device, "how much of its memory is in use")
    used, total = _memory()
    return round(100 * used / total)


def device_memory_used(device: DeviceLike = None) -> int:
    """Return how much of a device's memory all processes use.

    Args:
        device: the device; the current one by default.

    Returns:
        The bytes.

    Raises:
        RuntimeError: the operating system does not report it, or there is no such device.
    """
    _require_host_processor(device, "how much of its memory is in use")
    return _memory()[0]


def clock_rate(device: DeviceLike = None) -> int:
    """Return the current clock rate of a device.

    Args:
        device: the device; the current one by default.

    Returns:
        MHz, the mean of its compute units.

    Raises:
        RuntimeError: the operating system does not report it, or there is no such device.
    """
    _require_host_processor(device, "its clock rate")
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    rates = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    if not rates:
        raise RuntimeError("the operating system does not report the clock rate of the processors")
    return round(sum(rates) / len(rates))


def _require_host_processor(device: DeviceLike, what: str) -> None:
    properties = get_device_properties(device)
    if properties.type != "cpu" or not properties.host_unified_memory or not Path("/proc/stat").exists():
        index = _get_device_index(device, optional=True)
        raise RuntimeError(
            f"OpenCL does not report {what}, and the operating system has it only for devices that are the host's "
            f"processor: opencl:{index} is {properties.name} ({properties.type})"
        )


def _processor_times() -> tuple[int, int]:
    """The processors' idle time and total time, in the kernel's units."""
    times = [int(each) for each in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    return times[3] + times[4], sum(times)


def _memory() -> tuple[int, int]:
    """The bytes in use, and the total."""
    sizes = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, size = line.partition(":")
        sizes[name] = int(size.split()[0]) * 1024
    return sizes["MemTotal"] - sizes["MemAvailable"], sizes["MemTotal"]
