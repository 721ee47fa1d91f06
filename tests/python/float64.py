"""Tests that need a device with float64, which some devices lack (`make test DRIVER=rusticl`)."""

from collections.abc import Iterable

import torch

DOUBLES = frozenset({torch.float64, torch.complex128})


def has_fp64() -> bool:
    """Tell whether the device supports float64.

    Returns:
        False also if there is no device.
    """
    return torch.opencl.is_available() and torch.opencl.get_device_properties().fp64


def computed(dtypes: Iterable[torch.dtype]) -> list[torch.dtype]:
    """Filter out dtypes that the device does not support, for tests that loop over dtypes.

    Args:
        dtypes: any dtypes.

    Returns:
        The supported ones, in their order.
    """
    refused = frozenset() if has_fp64() else DOUBLES
    return [dtype for dtype in dtypes if dtype not in refused]
