"""The device for which source is generated."""

from dataclasses import dataclass
from functools import cache

import torch
from torch._inductor.virtualized import V


@dataclass(frozen=True)
class Target:
    """Properties of a device that the source depends on.

    Attributes:
        is_cpu: true if kernels are built for CPUs.
        compute_units: of the device.
        has_fp64: true if it supports double.
        vector_width: lanes of vectors.
    """

    is_cpu: bool
    compute_units: int
    has_fp64: bool
    vector_width: int = 16

    @staticmethod
    def current() -> "Target":
        """The device of the graph that is being compiled.

        Returns:
            Its description.
        """
        return _of(V.graph.get_current_device_or_throw().index or 0)


@cache
def _of(index: int) -> Target:
    properties = torch.opencl.get_device_properties(index)
    return Target(properties.device_class == "cpu", properties.multi_processor_count, properties.fp64)
