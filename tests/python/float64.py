"""Tests that need a device that computes in float64, as not every one does (`make test DRIVER=rusticl`)."""

from collections.abc import Iterable

import torch

DOUBLES = frozenset({torch.float64, torch.complex128})


def has_fp64() -> bool:
    """Say whether the device computes in float64.

    Returns:
        False also where there is no device.
    """
    return torch.opencl.is_available() and torch.opencl.get_device_properties().fp64


def computed(dtypes: Iterable[torch.dtype]) -> list[torch.dtype]:
    """Leave out what the device does not compute in: for tests that go through dtypes themselves.

    Args:
        dtypes: any dtypes.

    Returns:
        Those of them in which the device computes, in their order.
    """
    refused = frozenset() if has_fp64() else DOUBLES
    return [dtype for dtype in dtypes if dtype not in refused]
