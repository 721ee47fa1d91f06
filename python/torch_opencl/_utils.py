"""Device arguments; PyTorch's serialization looks for ``_get_device_index`` here."""

import torch

from torch_opencl._lazy import _lazy_init, device_count

# Device types that mean this one; "cuda" as well while that integration is enabled.
device_types = {"opencl"}

DeviceLike = torch.device | str | int | None


def _get_device_index(device: DeviceLike = None, optional: bool = False) -> int:
    """Return the index that a device argument stands for.

    Args:
        device: a device, its name, its index, or None.
        optional: whether a ``device`` without an index means the current device.

    Returns:
        The index of an OpenCL device.

    Raises:
        ValueError: ``device`` is not an OpenCL device, or has no index and ``optional`` is False.
    """
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if device is not None:
        if device.type not in device_types:
            raise ValueError(f"Expected an opencl device, but got: {device}")
        if device.index is not None:
            return device.index
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    _lazy_init()
    return torch._C._accelerator_getDeviceIndex()


def _check_index(device: DeviceLike) -> int:
    """Return the index that a device argument stands for; does not start OpenCL if it names an index.

    Args:
        device: a device, its name, its index, or None for the current one.

    Returns:
        The index of an existing OpenCL device.

    Raises:
        ValueError: ``device`` is not an OpenCL device.
        RuntimeError: there is no such device.
    """
    index = _get_device_index(device, optional=True)
    if not 0 <= index < device_count():
        raise RuntimeError(f"Invalid device id {index}: there are {device_count()} devices")
    return index
