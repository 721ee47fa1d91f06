"""Functions that wrappers call for matmuls and convolutions that are fused with what follows them."""

import struct

import torch

from torch_opencl._load import native

# matmul(text, a, b, bias, beta, alpha, buffers, scalars) computes alpha * a @ b + beta * bias, and with each result
# what the text says; `buffers` are the tensors that it reads and writes.
matmul = torch.ops.torch_opencl.fused_matmul.default
# convolution(text, input, weight, bias, stride, padding, dilation, groups, is_channels_last, buffers, scalars) does the
# same with a convolution, whose output has one of two layouts.
convolution = torch.ops.torch_opencl.fused_convolution.default


def text(source: str, reports_faults: bool) -> int:
    """Give a text a number.

    Args:
        source: what rust/ops/matmul/epilogue.cl includes.
        reports_faults: true where it reports bad input.

    Returns:
        The number, by which :data:`matmul` and :data:`convolution` know it.
    """
    return native().fused_text(source, reports_faults)


def bits(value: float) -> int:
    """The bits of a double, as an integer."""
    return struct.unpack("<q", struct.pack("<d", value))[0]
