"""Which devices there are, what they can do, and which one is current."""

import json
from dataclasses import dataclass, fields

import torch

from torch_opencl import _lazy
from torch_opencl._lazy import _is_in_bad_fork, _lazy_init, is_available
from torch_opencl._load import native
from torch_opencl._utils import DeviceLike, _check_index, _get_device_index
from torch_opencl.backends import matrix_instructions

__all__ = [
    "DeviceProperties",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_of",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "is_bf16_supported",
    "is_tf32_supported",
    "set_device",
    "synchronize",
]


@dataclass(frozen=True, kw_only=True)
class DeviceProperties:
    """Properties of a device, as its OpenCL driver reports them.

    Attributes:
        name: the device's name.
        vendor: its manufacturer.
        platform: the name of the driver's platform.
        driver_version: the driver's version, as text.
        version: the version of OpenCL, such as "OpenCL 3.0".
        opencl_c_version: the version of OpenCL C that its compiler supports.
        major: the major part of `version`.
        minor: the minor part of `version`.
        type: "gpu", "cpu" or "accelerator".
        device_class: "gpu" or "cpu": which kernels it runs.
        compute_units: the number of compute units.
        max_clock_mhz: the highest clock rate in MHz.
        global_mem_bytes: the device's memory in bytes.
        max_alloc_bytes: the largest buffer in bytes that the driver guarantees.
        local_mem_bytes: the memory in bytes that a work-group shares.
        max_work_group_size: the greatest number of work-items in a work-group.
        host_unified_memory: whether it shares the host's memory.
        fp64: whether it computes in float64.
        fp16: whether it computes in float16.
        extensions: the names of its OpenCL extensions.
    """

    name: str
    vendor: str
    platform: str
    driver_version: str
    version: str
    opencl_c_version: str
    major: int
    minor: int
    type: str
    device_class: str
    compute_units: int
    max_clock_mhz: int
    global_mem_bytes: int
    max_alloc_bytes: int
    local_mem_bytes: int
    max_work_group_size: int
    host_unified_memory: bool
    fp64: bool
    fp16: bool
    extensions: tuple[str, ...]

    @property
    def total_memory(self) -> int:
        """The device's memory in bytes, under the name that other backends use."""
        return self.global_mem_bytes

    @property
    def multi_processor_count(self) -> int:
        """The number of compute units, under the name that other backends use."""
        return self.compute_units

    def __repr__(self) -> str:
        return (
            f"DeviceProperties(name={self.name!r}, platform={self.platform!r}, "
            f"type={self.type!r}, version={self.version!r}, driver={self.driver_version!r}, "
            f"compute_units={self.compute_units}, "
            f"total_memory={self.global_mem_bytes / 2**20:.0f}MB, "
            f"fp64={self.fp64}, fp16={self.fp16})"
        )


class device:
    """Context manager that makes a device the current one.

    Args:
        device: the device to select; None and negative indices select nothing.

    Raises:
        ValueError: ``device`` is not an OpenCL device.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            _lazy_init()
            self.prev_idx = torch._C._accelerator_exchangeDevice(self.idx)

    def __exit__(self, *exception: object) -> None:
        if self.idx >= 0:
            torch._C._accelerator_maybeExchangeDevice(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of an object the current one.

    Args:
        obj: a tensor or storage; one that is not on an OpenCL device selects nothing.
    """

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> None:
        super().__init__(obj.device if obj.device.type == "opencl" else None)


def current_device() -> int:
    """Return the index of the current device of this thread.

    Returns:
        The index.

    Raises:
        RuntimeError: there is no OpenCL device.
    """
    return _get_device_index(None, optional=True)


def set_device(device: DeviceLike) -> None:
    """Make a device the current one of this thread.

    Args:
        device: the device to select; a negative index selects nothing.

    Raises:
        ValueError: ``device`` is not an OpenCL device.
        RuntimeError: there is no such device.
    """
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _lazy_init()
        torch._C._accelerator_setDeviceIndex(index)


def synchronize(device: DeviceLike = None) -> None:
    """Wait until the device has finished everything enqueued on all of its streams.

    Without an argument it does nothing on a machine without a device, because profilers always call it.

    Args:
        device: the device to wait for; the current one by default.

    Raises:
        RuntimeError: an enqueued command failed, or there is no such device.
    """
    operators = native()
    # Once a device has been used, this reads only a flag.
    if device is None and not _lazy._initialized and not _is_in_bad_fork() and not is_available():
        return
    if device is None:
        # On an idle device, calling an operator takes longer than this wait.
        torch._C._accelerator_synchronizeDevice(torch._C._accelerator_getDeviceIndex())
    else:
        operators.synchronize(_get_device_index(device, optional=True))


def get_device_name(device: DeviceLike = None) -> str:
    """Return the name of a device.

    Args:
        device: the device; the current one by default.

    Returns:
        The name that its driver reports.

    Raises:
        RuntimeError: there is no such device.
    """
    return get_device_properties(device).name


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return the properties of a device.

    Args:
        device: the device; the current one by default.

    Returns:
        The properties.

    Raises:
        RuntimeError: there is no such device.
    """
    values = json.loads(native().device_properties(_get_device_index(device, optional=True)))
    values["extensions"] = tuple(values["extensions"])
    return DeviceProperties(**{field.name: values[field.name] for field in fields(DeviceProperties)})


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """Return the OpenCL version of a device.

    Args:
        device: the device; the current one by default.

    Returns:
        The major and minor version, such as (3, 0).

    Raises:
        RuntimeError: there is no such device.
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether bfloat16 tensors are supported.

    They are stored as bfloat16 and computed in float32 on every device: OpenCL C has no bfloat16 type.

    Args:
        including_emulation: whether computing in float32 counts.

    Returns:
        True if there is a device and emulation counts.
    """
    return including_emulation and is_available()


def is_tf32_supported() -> bool:
    """Return whether the current device has instructions that multiply float32 matrices in TensorFloat-32.

    Matmuls use them if ``torch.set_float32_matmul_precision("high")`` allows it.

    Returns:
        True for NVIDIA's GPUs from compute capability 8.0 on.
    """
    return is_available() and "tfloat32" in matrix_instructions()["kinds"]


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Return whether a device can read another one's memory.

    Args:
        device: the device that would read.
        peer_device: the device that owns the memory.

    Returns:
        False: every device has its own context, and copies between devices go through the host.

    Raises:
        ValueError: an argument is not an OpenCL device.
        RuntimeError: there is no such device.
    """
    _check_index(device)
    _check_index(peer_device)
    return False


def get_arch_list() -> list[str]:
    """Return the architectures that kernels were compiled for when the package was built.

    Returns:
        An empty list: drivers compile the kernels on the machine that runs them.
    """
    return []


def get_gencode_flags() -> str:
    """Return the compiler's flags for :func:`get_arch_list`.

    Returns:
        An empty string: there are none.
    """
    return ""
