"""Every op of the table against the CPU: each dtype of its row, as a function, with out= and in place."""

from collections.abc import Callable

import pytest
import torch
from op_checks import assert_right, forward, has_inplace, inplace, out
from op_table import opinfo_dtypes
from torch.testing._internal.opinfo.core import OpInfo

# By test and OpInfo: the reason.
EXPECTED_FAILURES: dict[tuple[str, str], str] = {}


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
    for case in forward(info, dtype):
        assert_right(case, info, dtype, device)


# In one dimension ATen returns the contents of `out`, on every device.
UNWRITTEN_OUT = {"fft.ihfft2", "fft.ihfftn"}


@pytest.mark.parametrize(
    ("info", "dtype"), cases("out", lambda info: info.supports_out and info.name not in UNWRITTEN_OUT)
)
def test_out(info: OpInfo, dtype: torch.dtype, device: torch.device) -> None:
    for case in out(info, dtype):
        assert_right(case, info, dtype, device)


@pytest.mark.parametrize(("info", "dtype"), cases("inplace", has_inplace))
def test_inplace(info: OpInfo, dtype: torch.dtype, device: torch.device) -> None:
    for case in inplace(info, dtype):
        assert_right(case, info, dtype, device)
