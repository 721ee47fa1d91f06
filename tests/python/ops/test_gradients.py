"""Gradients of every differentiable op of the table against the CPU's."""

import pytest
import torch
from op_checks import assert_right, backward
from op_table import opinfo_dtypes
from torch.testing._internal.opinfo.core import OpInfo

# By OpInfo: the reason.
EXPECTED_FAILURES: dict[str, str] = {}


def cases() -> list:
    parameters = []
    for info, dtypes in opinfo_dtypes():
        if not info.supports_autograd:
            continue
        reason = EXPECTED_FAILURES.get(info.full_name)
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        for dtype in (torch.float32, torch.float64):
            if dtype in dtypes and dtype in info.supported_backward_dtypes("cpu"):
                name = f"{info.full_name}-{str(dtype).removeprefix('torch.')}"
                parameters.append(pytest.param(info, dtype, id=name, marks=marks))
    return parameters


@pytest.mark.parametrize(("info", "dtype"), cases())
def test_backward(info: OpInfo, dtype: torch.dtype, device: torch.device) -> None:
    for case in backward(info, dtype):
        assert_right(case, info, dtype, device)
