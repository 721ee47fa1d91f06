"""bitsandbytes on OpenCL devices: it finds :func:`register` by its entry points "bitsandbytes.backends"."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from torch_opencl import _bitsandbytes_optimizers, _load
from torch_opencl.quantized import QuantizedWeight

# The attribute of an offset that keeps the table of its weight.
TABLE = "_torch_opencl_table"
# A chunk, the least that a kernel unpacks.
_CHUNK = 32


def register() -> None:
    """Register kernels of bitsandbytes' operators; those without one use its generic implementations."""
    # An error would make the import of bitsandbytes fail, also for other devices.
    if _load.error() is not None:
        return
    kernels: dict[str, Callable[..., Any]] = {
        "dequantize_4bit": _dequantize_4bit,
        "dequantize_4bit.out": _dequantize_4bit_out,
        "gemm_4bit": _gemm_4bit,
        "gemv_4bit": _gemv_4bit,
        "gemv_4bit.out": _gemv_4bit_out,
        "dequantize_blockwise": _dequantize_blockwise,
        "dequantize_blockwise.out": _dequantize_blockwise_out,
        "int8_linear_matmul": _int8_linear_matmul,
        "int8_linear_matmul.out": _int8_linear_matmul_out,
        "int8_vectorwise_quant": _int8_vectorwise_quant,
        "int8_double_quant": _int8_double_quant,
        "optimizer_update_8bit_blockwise": _bitsandbytes_optimizers.optimizer_update_8bit_blockwise,
        "optimizer_update_32bit": _bitsandbytes_optimizers.optimizer_update_32bit,
    }
    for name, kernel in kernels.items():
        torch.library.register_kernel(f"bitsandbytes::{name}", "opencl", kernel)
    _bitsandbytes_optimizers.keep_paged_states_on_devices()


def _code(quant_type: str, device: torch.device) -> Tensor:
    return importlib.import_module("bitsandbytes.backends.utils")._get_4bit_code(quant_type, device)


def _weight(
    packed: Tensor, shape: Sequence[int], absmax: Tensor, code: Tensor, blocksize: int, nested: Tensor | None = None
) -> QuantizedWeight | None:
    """The weight, or None if a row has parts of chunks."""
    rows, columns = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, shape[0])
    if columns % _CHUNK or blocksize < _CHUNK:
        return None
    return QuantizedWeight(packed, "table4", (rows, columns), absmax.float(), nested, code, blocksize)


def _dequantize_4bit(
    A: Tensor, absmax: Tensor, blocksize: int, quant_type: str, shape: Sequence[int], dtype: torch.dtype
) -> Tensor:
    count, packed = prod(shape), A.contiguous().view(torch.uint8).reshape(-1)
    if missing := -count % _CHUNK:
        packed = torch.cat([packed, packed.new_zeros(missing // 2)])[: (count + missing) // 2]
    blocks = -(-(count + missing) // blocksize)
    scales = torch.cat([absmax, absmax.new_zeros(blocks - absmax.numel())]) if blocks > absmax.numel() else absmax
    chunks = (count + missing) // _CHUNK
    weight = _weight(packed, (chunks, _CHUNK), scales, _code(quant_type, A.device), blocksize)
    if weight is None:
        raise RuntimeError(f"dequantize_4bit: expected a blocksize of at least {_CHUNK}, got {blocksize}")
    return weight.dequantize(dtype).reshape(-1)[:count].reshape(tuple(shape))


def _dequantize_4bit_out(
    A: Tensor, absmax: Tensor, blocksize: int, quant_type: str, shape: Sequence[int], dtype: torch.dtype, out: Tensor
) -> None:
    out.copy_(_dequantize_4bit(A, absmax, blocksize, quant_type, shape, dtype))


def _gemm_4bit(
    A: Tensor,
    B: Tensor,
    shapeB: Sequence[int],
    absmax: Tensor,
    blocksize: int,
    quant_type: str,
    bias: Tensor | None = None,
    absmax_8bit: Tensor | None = None,
    absmax_code: Tensor | None = None,
    absmax_offset: Tensor | None = None,
) -> Tensor:
    code = _code(quant_type, A.device)
    # The three are given together.
    if absmax_8bit is not None and absmax_code is not None and absmax_offset is not None:
        code = _nested_table(quant_type, code, absmax_code, absmax_offset)
    weight = _weight(B.contiguous(), shapeB, absmax, code, blocksize, absmax_8bit)
    if weight is not None:
        return weight.linear(A, bias)
    if absmax_8bit is not None and absmax_code is not None and absmax_offset is not None:
        absmax = _dequantize_blockwise(absmax_8bit, absmax, absmax_code, 256, torch.float32) + absmax_offset
    dense = _dequantize_4bit(B, absmax, blocksize, quant_type, shapeB, A.dtype)
    return torch.nn.functional.linear(A, dense, bias)


def _nested_table(quant_type: str, code: Tensor, values: Tensor, offset: Tensor) -> Tensor:
    """The values of codes, then those of the scales' codes and their offset.

    Kept with the offset, which belongs to one weight; bitsandbytes shares the other values between weights.
    """
    key = quant_type, values._version, offset._version
    kept = getattr(offset, TABLE, None)
    if kept is None or kept[0] != key or kept[1] is not values:
        kept = key, values, torch.cat([code.float(), values.float(), offset.float().reshape(1)])
        setattr(offset, TABLE, kept)
    return kept[2]


def _gemv_4bit(A: Tensor, B: Tensor, shapeB: Sequence[int], absmax: Tensor, code: Tensor, blocksize: int) -> Tensor:
    weight = _weight(B.contiguous(), shapeB, absmax, code.float(), blocksize)
    if weight is not None:
        return weight.linear(A)
    quant_type = "fp4" if code[1] > 0 else "nf4"
    return torch.nn.functional.linear(A, _dequantize_4bit(B, absmax, blocksize, quant_type, shapeB, A.dtype))


def _gemv_4bit_out(
    A: Tensor, B: Tensor, shapeB: Sequence[int], absmax: Tensor, code: Tensor, blocksize: int, out: Tensor
) -> None:
    out.copy_(_gemv_4bit(A, B, shapeB, absmax, code, blocksize))


def _dequantize_blockwise(A: Tensor, absmax: Tensor, code: Tensor, blocksize: int, dtype: torch.dtype) -> Tensor:
    # Not bitsandbytes' own function, which is compiled by torch.compile at its first call.
    values = code[A.reshape(-1).int()]
    full = values.numel() // blocksize * blocksize
    scaled = (values[:full].view(-1, blocksize) * absmax[: full // blocksize].view(-1, 1)).reshape(-1)
    if full < values.numel():
        scaled = torch.cat([scaled, values[full:] * absmax[-1]])
    return scaled.to(dtype).reshape(A.shape)


def _dequantize_blockwise_out(
    A: Tensor, absmax: Tensor, code: Tensor, blocksize: int, dtype: torch.dtype, out: Tensor
) -> None:
    out.copy_(_dequantize_blockwise(A, absmax, code, blocksize, dtype))


def _int8_linear_matmul(A: Tensor, B: Tensor) -> Tensor:
    return torch._int_mm(A.reshape(-1, A.shape[-1]), B.t()).reshape(*A.shape[:-1], B.shape[0])


def _int8_linear_matmul_out(A: Tensor, B: Tensor, out: Tensor) -> None:
    out.copy_(_int8_linear_matmul(A, B))


def _without_outliers(A: Tensor, threshold: float) -> tuple[Tensor, Tensor | None]:
    """The matrix with 0 instead of outliers, and the columns that have some; None if nothing is an outlier."""
    if threshold <= 0:
        return A, None
    outliers = A.abs() >= threshold
    return A.masked_fill(outliers, 0), outliers.any(0).nonzero().reshape(-1)


def _int8_codes(A: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Codes of a matrix, and the largest magnitude along a dimension, which has the code 127."""
    top = A.abs().amax(dim, keepdim=True).float()
    # A row of zeros has the codes 0.
    return (A * (127.0 / top.clamp(min=1e-30))).round().to(torch.int8), top.reshape(-1)


def _int8_vectorwise_quant(A: Tensor, threshold: float = 0.0) -> tuple[Tensor, Tensor, Tensor | None]:
    kept, columns = _without_outliers(A.reshape(-1, A.shape[-1]), threshold)
    return *_int8_rows(kept, columns, A.shape), columns


def _int8_rows(kept: Tensor, columns: Tensor | None, shape: torch.Size) -> tuple[Tensor, Tensor]:
    codes, tops = _int8_codes(kept, 1)
    if columns is not None and len(kept) > 1:
        codes.index_fill_(1, columns, 0)
    return codes.reshape(shape), tops


def _int8_double_quant(A: Tensor, threshold: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    kept, columns = _without_outliers(A.reshape(-1, A.shape[-1]), threshold)
    (rows, row_tops), (codes, column_tops) = _int8_rows(kept, columns, A.shape), _int8_codes(kept, 0)
    return rows, codes.reshape(A.shape), row_tops, column_tops, columns
