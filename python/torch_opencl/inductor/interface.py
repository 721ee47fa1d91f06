"""The interface through which Dynamo and Inductor query devices."""

import dataclasses
from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

# Inductor considers splitting a reduction (layout/splits.py) only if it has fewer than 64 results per multiprocessor, a
# limit for GPUs. Reporting 64 times the compute units of a CPU raises the limit by that factor.
UNITS_OF_A_CORE = 64


def _properties(device: Any = None) -> Any:
    """Properties, adapted for Inductor's heuristics."""
    properties = torch.opencl.get_device_properties(device)
    if properties.device_class != "cpu":
        return properties
    return dataclasses.replace(properties, compute_units=properties.compute_units * UNITS_OF_A_CORE)


class OpenCLInterface(DeviceInterface):
    """OpenCL devices."""

    device = torch.opencl.device
    Event = torch.opencl.Event
    Stream = torch.opencl.Stream
    current_device = staticmethod(torch.opencl.current_device)
    set_device = staticmethod(torch.opencl.set_device)
    device_count = staticmethod(torch.opencl.device_count)
    stream = staticmethod(torch.opencl.stream)
    current_stream = staticmethod(torch.opencl.current_stream)
    set_stream = staticmethod(torch.opencl.set_stream)
    synchronize = staticmethod(torch.opencl.synchronize)
    is_available = staticmethod(torch.opencl.is_available)
    memory_allocated = staticmethod(torch.opencl.memory_allocated)
    exchange_device = staticmethod(torch._C._accelerator_exchangeDevice)
    maybe_exchange_device = staticmethod(torch._C._accelerator_maybeExchangeDevice)

    class Worker:
        """The interface for compile workers, which only read properties."""

        set_device = staticmethod(torch.opencl.set_device)
        current_device = staticmethod(torch.opencl.current_device)
        get_device_properties = staticmethod(_properties)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        """An unused handle: launches find the current stream themselves."""
        return 0

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        """Part of cache keys."""
        return torch.opencl.get_device_properties(device).opencl_c_version

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        """All devices store and compute bfloat16, in float32."""
        return True

    @classmethod
    def raise_if_triton_unavailable(cls, device: Any = None) -> None:
        """Kernels are in OpenCL C: Triton is not needed."""


# Counting devices loads the driver, which a forked process cannot use then. Libraries import Dynamo, and with it this
# module, without using devices, so names are registered for as many devices as a machine may have.
MOST_DEVICES = 16


def register() -> None:
    """Register the interface for the device and for each possible index."""
    register_interface_for_device("opencl", OpenCLInterface)
    for index in range(MOST_DEVICES):
        register_interface_for_device(f"opencl:{index}", OpenCLInterface)
