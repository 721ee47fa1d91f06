"""Finds by measurement how to tile matmuls and convolutions on a device: ``python -m torch_opencl.tune``.

How large a tile suits the registers of a device, and how much of a factor its caches, depends on more than a driver
tells. Each class of devices starts with values that are good for many; this tries others, one group after the other,
and keeps what is faster in a file for the device and its driver, which every later process reads.
"""

from torch_opencl.tune.record import Record, recorded
from torch_opencl.tune.tuner import tune

__all__ = ["Record", "recorded", "tune"]
