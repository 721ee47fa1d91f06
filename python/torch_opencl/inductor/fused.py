"""Functions that wrappers call for matmuls and convolutions with epilogues."""

import struct

import torch

from torch_opencl._load import native

# matmul(source_id, a, b, bias, beta, alpha, buffers, scalars) computes alpha * a @ b + beta * bias, and applies the
# epilogue with that id to each result; `buffers` are the tensors that the epilogue reads and writes.
matmul = torch.ops.torch_opencl.fused_matmul.default
# convolution(source_id, input, weight, bias, stride, padding, dilation, groups, is_channels_last, buffers, scalars)
# does this with a convolution, whose output has one of two layouts.
convolution = torch.ops.torch_opencl.fused_convolution.default


def register_source(source: str, reports_faults: bool) -> int:
    """Register the source of an epilogue.

    Args:
        source: included by rust/ops/matmul/epilogue.cl.
        reports_faults: true if it reports bad input.

    Returns:
        Its id, for :data:`matmul` and :data:`convolution`.
    """
    return native().fused_source(source, reports_faults)


def bits(value: float) -> int:
    """The bits of a double, as an integer."""
    return struct.unpack("<q", struct.pack("<d", value))[0]
