"""Weights of GPTQ, AWQ and HQQ, packed again into formats that kernels multiply.

These libraries pack codes of several rows or columns of a layer into one integer. ``affine4`` and ``affine8`` of
:mod:`torch_opencl.quantized` have the codes of a row side by side, so that a row is read in whole vectors.

The formats are described by the sources of AutoGPTQ and GPTQModel (Frantar et al., "GPTQ: Accurate Post-Training
Quantization for Generative Pre-trained Transformers", 2023), of AutoAWQ (Lin et al., "AWQ: Activation-aware Weight
Quantization for LLM Compression and Acceleration", 2024) and of hqq (Badri and Shaji, "Half-Quadratic Quantization of
Large Machine Learning Models", 2023).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torch_opencl.quantized import QuantizedLinear, QuantizedWeight

__all__ = ["from_awq", "from_gptq", "from_hqq", "replace_hqq_layers"]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# Positions of the codes of an integer, from its lowest bits on, in AWQ's checkpoints.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def from_gptq(
    qweight: Tensor,
    qzeros: Tensor,
    scales: Tensor,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    bits: int = 4,
    checkpoint_format: str = "gptq",
) -> QuantizedLinear:
    """Return a layer with the weight of a linear layer of a GPTQ checkpoint.

    A layer whose columns are not in the order of their groups (``desc_act``) gathers the columns of its input.

    Args:
        qweight: int32, ``[in_features * bits / 32, out_features]``.
        qzeros: int32, ``[groups, out_features * bits / 32]``.
        scales: float16, bfloat16 or float32, ``[groups, out_features]``.
        g_idx: int32 or int64, ``[in_features]``: the group of each column; by default in order.
        bias: ``[out_features]``.
        bits: 2, 3, 4 or 8. Kernels multiply codes of 4 and 8 bits; 2 and 3 bits take as much memory as 4.
        checkpoint_format: "gptq", in which zeros are stored less one, or "gptq_v2", in which they are not.

    Raises:
        ValueError: an argument has another dtype or shape, the format or the number of bits is unknown, groups differ
            in size, or the size is not a power of two from 32 on (or all columns).
    """
    name = "repack.from_gptq"
    if bits not in (2, 3, 4, 8):
        raise ValueError(f"{name}: expected 2, 3, 4 or 8 bits, got {bits}")
    if (qweight.dim() == 2 and qweight.shape[0] * 32 % bits) or (qzeros.dim() == 2 and qzeros.shape[1] * 32 % bits):
        raise ValueError(
            f"{name}: qweight {list(qweight.shape)} and qzeros {list(qzeros.shape)} do not hold codes of {bits} bits"
        )
    if checkpoint_format not in ("gptq", "gptq_v2"):
        raise ValueError(f"{name}: expected checkpoint_format 'gptq' or 'gptq_v2', got {checkpoint_format!r}")
    _check_int32(name, qweight=qweight, qzeros=qzeros)
    codes = _unpacked(qweight.t(), bits)
    zeros = _unpacked(qzeros, bits).t()
    if checkpoint_format == "gptq":
        zeros = (zeros + 1) & (1 << bits) - 1
    _check_shapes(name, codes, zeros, scales, bias)
    _check_devices(name, qweight=qweight, qzeros=qzeros, scales=scales, g_idx=g_idx, bias=bias)
    order = _column_order(name, g_idx, codes.shape[1], scales.shape[0])
    if order is not None:
        codes = codes.index_select(1, order)
    return QuantizedLinear.from_weight(_affine(name, codes, zeros, scales.t(), bits), bias, order)


def from_awq(qweight: Tensor, qzeros: Tensor, scales: Tensor, bias: Tensor | None = None) -> QuantizedLinear:
    """Return a layer with the weight of a linear layer of an AWQ checkpoint of version "gemm", of 4 bits.

    Args:
        qweight: int32, ``[in_features, out_features / 8]``.
        qzeros: int32, ``[groups, out_features / 8]``.
        scales: float16, bfloat16 or float32, ``[groups, out_features]``.
        bias: ``[out_features]``.

    Raises:
        ValueError: an argument has another dtype or shape, or the size of groups is not a power of two from 32 on (or
            all columns).
    """
    name = "repack.from_awq"
    _check_int32(name, qweight=qweight, qzeros=qzeros)
    _check_devices(name, qweight=qweight, qzeros=qzeros, scales=scales, bias=bias)
    codes, zeros = (_awq_columns(_unpacked(packed, 4)).t() for packed in (qweight, qzeros))
    _check_shapes(name, codes, zeros, scales, bias)
    return QuantizedLinear.from_weight(_affine(name, codes, zeros, scales.t(), 4), bias)


def from_hqq(layer: Any) -> QuantizedLinear:
    """Return a layer with the weight of a layer of hqq.

    Args:
        layer: ``hqq.core.quantize.HQQLinear`` of 1, 1.58, 2, 3, 4 or 8 bits, with ``axis=1``.

    Raises:
        ValueError: the layer has another number of bits or axis, quantised scales or codes viewed as floats, or the
            size of groups is not a power of two from 32 on (or all columns), or does not divide the columns.
    """
    name, meta = "repack.from_hqq", layer.meta
    is_viewed, has_scales = bool(meta.get("view_as_float")), "scale" in meta and "zero" in meta
    if meta["axis"] != 1 or meta["nbits"] not in (1, 1.58, 2, 3, 4, 8) or is_viewed or not has_scales:
        raise ValueError(
            f"{name}: expected axis=1, 1 to 4 or 8 bits, scales that are not quantised and view_as_float=False, got "
            f"axis={meta['axis']}, {meta['nbits']} bits, view_as_float={is_viewed}"
            + ("" if has_scales else ", quantised scales")
        )
    rows, columns = meta["shape"]
    if meta["scale"].numel() % rows:
        raise ValueError(f"{name}: expected groups that divide {columns} columns, got {meta['group_size']} columns")
    scales, zeros = (meta[figure].reshape(rows, -1) for figure in ("scale", "zero"))
    # Packed matrices of 3 bits have rows that are not used.
    codes = layer.unpack(dtype=torch.uint8)[: scales.numel()].reshape(rows, columns)
    bits = 8 if meta["nbits"] == 8 else 4
    return QuantizedLinear.from_weight(_affine(name, codes, zeros, scales, bits), layer.bias)


def replace_hqq_layers(model: nn.Module) -> int:
    """Replace the layers of hqq inside a model by :func:`from_hqq`, in place, and return their number.

    Raises:
        ValueError: as for :func:`from_hqq`, with the name of the layer; no layer has been replaced.
    """
    named = [(name, module) for name, module in model.named_modules(remove_duplicate=False) if name]
    layers = {module: name for name, module in named if type(module).__name__ == "HQQLinear"}
    replaced = {}
    for module, name in layers.items():
        try:
            replaced[module] = from_hqq(module)
        except ValueError as error:
            raise ValueError(f"layer {name}: {error}") from error
    for name, module in named:
        if module in replaced:
            model.set_submodule(name, replaced[module])
    return len(replaced)


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """Return the codes of rows of integers as uint8: a row is one string of bits, from the lowest bit on."""
    rows, words = packed.shape
    data = packed.contiguous().view(torch.uint8).view(rows, words * 4)
    if bits == 8:
        return data
    # A group of bytes holds a whole number of codes.
    data = data.view(rows, -1, bits if bits % 2 else 1)
    if bits == 3:
        bytes_ = data.to(torch.int32)
        string = bytes_[..., 0] | bytes_[..., 1] << 8 | bytes_[..., 2] << 16
        codes = [(string >> 3 * i & 7).to(torch.uint8) for i in range(8)]
    else:
        codes = [data[..., 0] >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return torch.stack(codes, dim=-1).view(rows, -1)


def _awq_columns(codes: Tensor) -> Tensor:
    order = torch.tensor(_AWQ_ORDER, device=codes.device).argsort()
    return codes.view(codes.shape[0], -1, len(_AWQ_ORDER)).index_select(2, order).view(codes.shape)


def _column_order(name: str, g_idx: Tensor | None, columns: int, groups: int) -> Tensor | None:
    """Return the columns sorted by group, or None if they are sorted."""
    if g_idx is None:
        return None
    if g_idx.shape != (columns,):
        raise ValueError(f"{name}: expected g_idx of shape [{columns}], got {list(g_idx.shape)}")
    in_order = torch.arange(groups, device=g_idx.device).repeat_interleave(columns // groups)
    order = torch.argsort(g_idx.long(), stable=True)
    if not torch.equal(g_idx.long()[order], in_order):
        raise ValueError(f"{name}: g_idx does not have {columns // groups} columns in each of {groups} groups")
    return None if torch.equal(g_idx.long(), in_order) else order


def _affine(name: str, codes: Tensor, zeros: Tensor, scales: Tensor, bits: int) -> QuantizedWeight:
    """Pack codes ``[rows, columns]`` with zeros and scales ``[rows, groups]``."""
    (rows, columns), groups = codes.shape, scales.shape[1]
    size = columns // groups
    if size < 32 or (groups > 1 and size.bit_count() != 1):
        raise ValueError(f"{name}: expected groups of a power of two of columns from 32 on, got {size} columns")
    if columns % 32:
        raise ValueError(f"{name}: expected a multiple of 32 columns, got {columns}")
    if bits == 8:
        # Codes are signed in the kernels' format: 128 is subtracted from them and from the zeros.
        packed = (codes ^ 0x80).contiguous()
        zeros = zeros.float() - 128 if zeros.is_floating_point() else (zeros ^ 0x80).view(torch.int8)
    else:
        packed = codes[:, ::2] | codes[:, 1::2] << 4
    return QuantizedWeight(
        packed,
        "affine8" if bits == 8 else "affine4",
        (rows, columns),
        scales.contiguous(),
        zeros.contiguous(),
        group_size=size,
        zeros_kind="codes",
    )


def _check_int32(name: str, **packed: Tensor) -> None:
    for argument, tensor in packed.items():
        if tensor.dtype != torch.int32 or tensor.dim() != 2 or not tensor.numel():
            raise ValueError(f"{name}: expected an int32 matrix {argument}, got {tensor.dtype} {list(tensor.shape)}")


def _check_devices(name: str, qweight: Tensor, **others: Tensor | None) -> None:
    for argument, tensor in others.items():
        if tensor is not None and tensor.device != qweight.device:
            raise ValueError(f"{name}: {argument} is on {tensor.device}, and qweight on {qweight.device}")


def _check_shapes(name: str, codes: Tensor, zeros: Tensor, scales: Tensor, bias: Tensor | None) -> None:
    """Check that codes ``[rows, columns]`` and zeros ``[rows, groups]`` fit scales ``[groups, rows]``."""
    rows, columns = codes.shape
    fits = scales.dim() == 2 and scales.shape == (zeros.shape[1], rows) and zeros.shape[0] == rows
    if not fits or not scales.shape[0] or columns % scales.shape[0] or scales.dtype not in _FLOATS:
        raise ValueError(
            f"{name}: scales {scales.dtype} {list(scales.shape)} and zeros {list(zeros.shape[::-1])} do not fit a "
            f"weight of {rows} rows and {columns} columns"
        )
    if bias is not None and bias.shape != (rows,):
        raise ValueError(f"{name}: expected a bias of shape [{rows}], got {list(bias.shape)}")
