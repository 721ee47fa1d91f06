"""Operators in dtypes that CUDA supports and the CPU does not: libraries avoid these only on the CPU."""

import itertools

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

# Dtypes in which the expected result is computed. Other dtypes are not converted.
WIDE = {
    **dict.fromkeys((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), torch.float64),
    torch.bool: torch.float64,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}
TOLERANCE = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.complex32: 1e-3}
# ATen splits a complex convolution into three float16 ones: sums of hundreds of values, and their differences.
CONVOLUTION_TOLERANCE = 2e-1
# Operators of CUDA that only its own dispatch calls.
CUDAS_OWN = ("torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward")
PAIRS = [
    pytest.param(info, dtype, id=f"{info.formatted_name}-{str(dtype).removeprefix('torch.')}")
    for info in op_db
    if info.name not in CUDAS_OWN
    for dtype in sorted(set(info.dtypesIfCUDA) - set(info.dtypes), key=str)
]


def nansum(x: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
    return torch.where(x.isnan(), 0, x).sum(*args, **kwargs)


def nanmean(x: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
    return nansum(x, *args, **kwargs) / x.isnan().logical_not().sum(*args, **kwargs)


# The CPU supports these in no complex dtype.
REFERENCES = {"nansum": nansum, "nanmean": nanmean}


def converted(sample: SampleInput, change: object) -> SampleInput:
    return sample.transform(lambda value: change(value) if isinstance(value, torch.Tensor) else value)


def tensors(result: object) -> list[torch.Tensor]:
    return [value for value in torch.utils._pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]


def parts(x: torch.Tensor) -> torch.Tensor:
    """Return real values: of a complex value, one part may be infinite and the other not."""
    return torch.view_as_real(x.resolve_conj()).double() if x.is_complex() else x.double()


@pytest.mark.parametrize(("info", "dtype"), PAIRS)
def test_dtype_of_cuda_is_taken(device, info: OpInfo, dtype: torch.dtype):
    torch.manual_seed(0)
    samples = list(itertools.islice(info.sample_inputs("cpu", dtype), 4))
    assert samples
    for sample in samples:
        there = converted(sample, lambda tensor: tensor.to(device))
        wide = converted(sample, lambda tensor: tensor.to(WIDE.get(dtype, dtype)) if tensor.dtype == dtype else tensor)
        actuals = tensors(info.op(there.input, *there.args, **there.kwargs))
        if info.name == "nn.functional.rrelu" and sample.kwargs.get("training"):
            continue  # random
        expecteds = tensors(REFERENCES.get(info.name, info.op)(wide.input, *wide.args, **wide.kwargs))
        assert len(actuals) == len(expecteds) > 0
        for actual, expected in zip(actuals, expecteds, strict=True):
            assert actual.device == device and actual.is_complex() == expected.is_complex()
            assert actual.dtype.itemsize <= expected.dtype.itemsize
            tolerance = CONVOLUTION_TOLERANCE if "conv" in info.name else TOLERANCE.get(dtype, 1e-5)
            # A transform of several dimensions rounds to 16 bits between them, as CUDA's does.
            tolerance *= 4 if info.name.startswith("fft.") else 1
            pair = [tensor.cpu() for tensor in (actual, expected.to(actual.dtype))]
            if expected.is_floating_point() and not actual.is_floating_point():
                # Integers have no NaN: the result of a remainder by zero is unspecified.
                pair = [tensor[expected.isfinite()] for tensor in pair]
            pair = [parts(tensor) for tensor in pair]
            torch.testing.assert_close(*pair, rtol=tolerance, atol=tolerance, equal_nan=True)
