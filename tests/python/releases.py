"""Tests for some releases of PyTorch only."""

import pytest
import torch

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))


def release(name: str) -> tuple[int, ...]:
    """Parse a release as written in rows of the op table.

    Args:
        name: a minor version such as "2.12".

    Returns:
        Its version numbers.
    """
    return tuple(map(int, name.split(".")))


def requires_torch(oldest: str, why: str) -> pytest.MarkDecorator:
    """Skip a test with older releases of PyTorch.

    Args:
        oldest: the first release that supports the test, such as "2.13".
        why: what older releases lack.

    Returns:
        The mark.
    """
    return pytest.mark.skipif(release(oldest) > RELEASE, reason=f"requires torch >= {oldest}: {why}")
