"""Every operator: gradients partly computed by the host, batched gradients, negative dims, and overlapping out=."""

import op_corners
import pytest
import torch
from op_checks import CPU, assert_right
from op_table import opinfo_dtypes
from torch.testing._internal.opinfo.core import OpInfo

# By check and OpInfo: why the device's result differs from the CPU's.
EXPECTED_FAILURES: dict[tuple[str, str], str] = {}
DERIVATIVES = (
    op_corners.pairs,
    op_corners.batches_of_gradients,
    op_corners.vmap_of_gradients,
    op_corners.negative_dims,
)


def cases() -> list:
    parameters = []
    for info, dtypes in opinfo_dtypes():
        checks = (op_corners.overlapping_out,) if info.supports_out else ()
        if info.supports_autograd and torch.float32 in info.supported_backward_dtypes("cpu"):
            checks += DERIVATIVES
        for check in checks if torch.float32 in dtypes else ():
            reason = EXPECTED_FAILURES.get((check.__name__, info.full_name))
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            parameters.append(pytest.param(check, info, id=f"{check.__name__}-{info.full_name}", marks=marks))
    return parameters


@pytest.mark.parametrize(("check", "info"), cases())
def test_corners(check, info: OpInfo, device: torch.device) -> None:
    checked, refused = 0, None
    for case in check(info, torch.float32):
        try:
            case.compute(case.sample, CPU)
        except RuntimeError as error:
            # The CPU lacks this derivative, or a batching rule for it.
            refused = error
            continue
        assert_right(case, info, torch.float32, device)
        checked += 1
    if refused and not checked:
        pytest.skip(f"the CPU refuses all cases, such as with: {refused}")
