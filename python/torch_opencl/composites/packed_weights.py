"""Matmuls with packed weights."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_opencl.quantized import QuantizedWeight


def weight_int4pack_mm_with_scales_and_zeros(
    self: Tensor, mat2: Tensor, qGroupSize: int, qScale: Tensor, qZeros: Tensor
) -> Tensor:
    """Multiply by the transpose of a weight whose elements are ``(code - zero) * scale``.

    Args:
        self: ``[m, k]``, float32, float16 or bfloat16.
        mat2: int32, ``[n, k / 8]``: column ``8 * i + j`` is in bits ``4 * j`` to ``4 * j + 3`` of word ``i``.
        qGroupSize: columns that share a scale: a power of two from 32 on, or k.
        qScale: ``[k / qGroupSize, n]``, floating.
        qZeros: ``[k / qGroupSize, n]``, int8 or int32.

    Returns:
        ``[m, n]``, of the dtype of ``self``.

    Raises:
        RuntimeError: a shape or a dtype does not fit.
    """
    are_matrices = self.dim() == 2 and mat2.dim() == 2 and self.shape[1] == mat2.shape[1] * 8
    if not are_matrices or mat2.dtype != torch.int32:
        raise RuntimeError(
            "_weight_int4pack_mm_with_scales_and_zeros: expected self [m, k] and int32 mat2 [n, k / 8], "
            f"got {list(self.shape)} and {mat2.dtype} {list(mat2.shape)}"
        )
    rows, columns = mat2.shape[0], self.shape[1]
    groups = [columns // max(qGroupSize, 1), rows]
    if list(qScale.shape) != groups or list(qZeros.shape) != groups or qZeros.is_floating_point():
        raise RuntimeError(
            f"_weight_int4pack_mm_with_scales_and_zeros: expected qScale and integers qZeros of shape {groups} for "
            f"groups of {qGroupSize} columns, got {list(qScale.shape)} and {qZeros.dtype} {list(qZeros.shape)}"
        )
    weight = QuantizedWeight(
        mat2.contiguous(), "affine4", (rows, columns), qScale.t(), qZeros.t(), None, qGroupSize, 0, "codes"
    )
    return weight.linear(self)
