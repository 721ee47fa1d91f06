"""Every op of the table against the CPU: each dtype of its row, as a function, with out= and in place."""

from collections.abc import Callable

import pytest
import torch
from op_samples import NoFallback, assert_as_cpu, call, mirror, samples, settled, tolerance
from op_table import opinfo_dtypes
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_map_only

# By test and OpInfo: why.
EXPECTED_FAILURES: dict[tuple[str, str], str] = {}
# In place these uncover memory that nothing has been written to.
UNINITIALISED = {"resize_", "resize_as_"}


def cases(test: str, wanted: Callable[[OpInfo], bool] = lambda info: True) -> list:
    """Parameters (OpInfo, dtype) of a test."""
    parameters = []
    for info, dtypes in opinfo_dtypes():
        if not wanted(info):
            continue
        reason = EXPECTED_FAILURES.get((test, info.full_name))
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        for dtype in dtypes:
            name = f"{info.full_name}-{str(dtype).removeprefix('torch.')}"
            parameters.append(pytest.param(info, dtype, id=name, marks=marks))
    return parameters


@pytest.mark.parametrize(("info", "dtype"), cases("forward"))
def test_forward(info: OpInfo, dtype: torch.dtype, device: torch.device) -> None:
    for sample in samples(info, dtype):
        with NoFallback():
            actual = call(info.op, sample, device)
        assert_as_cpu(settled(info.op, actual, sample), on_cpu(info.op), sample, dtype, **tolerance(info, dtype))


def on_cpu(function: Callable) -> Callable:
    return lambda sample: settled(function, call(function, sample), sample)


def strided_like(tensor: torch.Tensor) -> torch.Tensor:
    """An uninitialised tensor of the same shape in which no two elements are neighbours."""
    return tensor.new_empty((*tensor.shape, 2)).select(-1, 1)


# Of one dimension ATen stores what `out` has in the result, on every device.
UNWRITTEN_OUT = {"fft.ihfft2", "fft.ihfftn"}


@pytest.mark.parametrize(
    ("info", "dtype"), cases("out", lambda info: info.supports_out and info.name not in UNWRITTEN_OUT)
)
def test_out(info: OpInfo, dtype: torch.dtype, device: torch.device) -> None:
    """Into a tensor that fits, one with gaps between its elements, and one that has to grow."""
    for sample in samples(info, dtype)[:4]:
        expected = call(info.op, sample)
        try:
            call(info.op, sample, out=tree_map_only(torch.Tensor, torch.empty_like, expected))
        except (RuntimeError, TypeError):
            continue  # this form of the op has no out=
        for make in (torch.empty_like, strided_like, lambda tensor: tensor.new_empty(0)):
            given = tree_map_only(torch.Tensor, lambda tensor, make=make: make(tensor.to(device)), expected)
            with NoFallback():
                call(info.op, sample, device, out=given)
            assert_as_cpu(settled(info.op, given, sample), on_cpu(info.op), sample, dtype, **tolerance(info, dtype))


@pytest.mark.parametrize(
    ("info", "dtype"),
    cases("inplace", lambda info: info.inplace_variant is not None and info.name not in UNINITIALISED),
)
def test_inplace(info: OpInfo, dtype: torch.dtype, device: torch.device) -> None:
    def on_a_copy(target: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        return info.inplace_variant(mirror(target, target.device), *args, **kwargs)

    for sample in samples(info, dtype):
        # Not every sample can be written to: its shape may broadcast, its dtype be promoted.
        try:
            call(on_a_copy, sample)
        except RuntimeError:
            continue
        with NoFallback():
            actual = call(info.inplace_variant, sample, device)
        assert_as_cpu(actual, on_cpu(on_a_copy), sample, dtype, **tolerance(info, dtype))
