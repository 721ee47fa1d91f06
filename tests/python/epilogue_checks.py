"""Compiles functions, and counts what has become part of the kernels of matmuls and convolutions."""

import re

import torch
from torch._inductor.utils import run_and_get_code

_FUSED = re.compile(r"_opencl_fused\.(?:matmul|convolution)\(")
_LAUNCH = "_opencl_launch("


def close(actual, expected, **limits):
    """Compare results, of float32 unless limits are given."""
    torch.testing.assert_close(actual, expected, **(limits or {"rtol": 1e-4, "atol": 1e-4}))


def compiled(function, *args, fused=1, launches=0, **options):
    """Return a compiled function's result, once its wrappers have been found to fuse as they should.

    Args:
        function: to compile.
        args: its arguments.
        fused: how many matmuls and convolutions are computed with what follows them.
        launches: how many kernels are generated besides; None for any number.
        options: those of torch.compile.

    Returns:
        The result.
    """
    result, codes = run_and_get_code(torch.compile(function, **options), *args)
    assert sum(len(_FUSED.findall(code)) for code in codes) == fused, codes
    if launches is not None:
        assert sum(code.count(_LAUNCH) for code in codes) == launches, codes
    return result
