"""Gradients of every differentiable op of the table against those of the CPU."""

from functools import partial

import pytest
import torch
from op_samples import NoFallback, assert_as_cpu, mirror_all, samples, tolerance
from op_table import opinfo_dtypes
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten

# By OpInfo: why.
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


def gradients(info: OpInfo, sample: SampleInput, device: torch.device) -> list[torch.Tensor | None]:
    """Derivatives of a weighted sum of the results by all inputs; weights keep symmetric errors from cancelling."""
    arguments = mirror_all((sample.input, sample.args, sample.kwargs), device)
    first, args, kwargs = arguments
    results = tree_flatten(sample.output_process_fn_grad(info.op(first, *args, **kwargs)))[0]
    results = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    inputs = [t for t in tree_flatten(arguments)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if not results or not inputs:
        return []
    generator = torch.Generator().manual_seed(1)
    # Single precision, so that a wider dtype gets the same numbers.
    weights = [torch.randn(r.shape, generator=generator).to(device, r.dtype) for r in results]
    return list(torch.autograd.grad(results, inputs, weights, allow_unused=True))


@pytest.mark.parametrize(("info", "dtype"), cases())
def test_backward(info: OpInfo, dtype: torch.dtype, device: torch.device) -> None:
    for sample in samples(info, dtype, requires_grad=True):
        with NoFallback():
            actual = gradients(info, sample, device)
        compute = partial(gradients, info, device=torch.device("cpu"))
        assert_as_cpu(actual, compute, sample, dtype, **tolerance(info, dtype))
