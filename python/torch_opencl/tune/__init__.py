"""Finds by measurement how to tile matmuls and convolutions on a device: ``python -m torch_opencl.tune``.

The best tile for a device's registers, and the best block of an operand for its caches, depend on more than a driver
reports. Each class of devices starts with values that are good for many. This package tries others, one group after
the other, and keeps faster ones in a file for the device and its driver, which every later process reads.
"""

from torch_opencl.tune.record import Record, recorded
from torch_opencl.tune.tuner import tune

__all__ = ["Record", "recorded", "tune"]
