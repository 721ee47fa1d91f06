"""Compiles functions, and counts the operators that were fused into the kernels of matmuls and convolutions."""

import re

import torch
from torch._inductor.utils import run_and_get_code

_FUSED = re.compile(r"_opencl_fused\.(?:matmul|convolution)\(")
_LAUNCH = "_opencl_launch("


def close(actual, expected, **limits):
    """Compare results; the default tolerances are for float32."""
    torch.testing.assert_close(actual, expected, **(limits or {"rtol": 1e-4, "atol": 1e-4}))


def compiled(function, *args, fused=1, launches=0, **options):
    """Return a compiled function's result, after checking what its wrappers fused.

    Args:
        function: the function to compile.
        args: its arguments.
        fused: the number of matmuls and convolutions that are fused with the operators after them.
        launches: the number of other generated kernels; None for any number.
        options: options of torch.compile.

    Returns:
        The result.
    """
    result, codes = run_and_get_code(torch.compile(function, **options), *args)
    assert sum(len(_FUSED.findall(code)) for code in codes) == fused, codes
    if launches is not None:
        assert sum(code.count(_LAUNCH) for code in codes) == launches, codes
    return result
