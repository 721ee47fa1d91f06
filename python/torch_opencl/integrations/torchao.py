"""torchao: weights of 4 and 8 bits are multiplied as they are stored (:mod:`torch_opencl.quantized`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from torch_opencl.quantized import QuantizedWeight

__all__ = ["disable", "enable"]

_WORKFLOWS = "torchao.quantization.quantize_.workflows"
_LINEAR = torch.ops.aten.linear.default
# Dtypes that kernels multiply; others are computed by torchao's generic operators.
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# The least that a kernel unpacks, in columns.
_CHUNK = 32

# The functions that `disable` calls, the last one first.
_undo: list[Callable[[], None]] = []


def enable() -> None:
    """Make torchao's weights use this package's kernels; see :func:`torch_opencl.integrations.enable`."""
    if _undo:
        return
    classes = _classes()
    for name, packed in _PACKED.items():
        cls = classes[name]
        for table, key in ((cls._ATEN_OP_TABLE[cls], _LINEAR), (cls._TORCH_FN_TABLE[cls], linear)):
            original = table[key]
            table[key] = partial(_linear, original, packed)
            _undo.append(partial(table.__setitem__, key, original))
    int4 = classes["int4.int4_plain_int32_tensor:Int4PlainInt32Tensor"]
    original = vars(int4)["from_hp"]
    int4.from_hp = classmethod(partial(_from_hp, original.__func__))
    _undo.append(partial(setattr, int4, "from_hp", original))


def disable() -> None:
    """Undo the changes of :func:`enable`."""
    while _undo:
        _undo.pop()()


def _classes() -> dict[str, Any]:
    """The classes of weights.

    Raises:
        ImportError: torchao is not installed.
        RuntimeError: this version of it lacks one of the names.
    """
    importlib.import_module("torchao")
    found = {}
    for name in _PACKED:
        module, _, attribute = name.partition(":")
        try:
            cls = getattr(importlib.import_module(f"{_WORKFLOWS}.{module}"), attribute)
            missing = [table for table in ("_ATEN_OP_TABLE", "_TORCH_FN_TABLE") if cls not in getattr(cls, table, ())]
        except (ImportError, AttributeError):
            missing = [attribute]
        if missing:
            raise RuntimeError(f"torchao: this version has no {module}.{missing[0]}: torch_opencl supports 0.18")
        found[name] = cls
    return found


def _linear(
    original: Callable[..., Any],
    packed: Callable[[Any], QuantizedWeight | None],
    function: Any,
    types: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
) -> Any:
    """``F.linear(x, weight, bias)`` for a weight on this device, and else as torchao computes it."""
    x, weight, bias = (*args, *(None,) * 3)[:3]
    bias = (kwargs or {}).get("bias", bias)
    is_ours = isinstance(x, Tensor) and x.device.type == "opencl" and x.dtype in _FLOATS
    known = packed(weight) if is_ours and len(args) > 1 else None
    if known is None:
        return original(function, types, args, kwargs)
    scale = getattr(weight, "act_pre_scale", None)
    return known.linear(x if scale is None else x * scale, bias)


def _weight(codes: Tensor, name: str, shape: Any, scales: Tensor, zeros: Tensor | None) -> QuantizedWeight | None:
    """The weight ``(code - zero) * scale``, or None if kernels do not support its groups."""
    rows, columns = shape
    groups = scales.shape[1] if scales.dim() == 2 else 0
    if not groups or columns % groups or columns % _CHUNK:
        return None
    group = columns // groups
    if groups > 1 and (group < _CHUNK or group & (group - 1)):
        return None
    kind = "absent" if zeros is None else "codes"
    zeros = None if zeros is None else zeros.expand(rows, groups)
    return QuantizedWeight(codes, name, (rows, columns), scales.expand(rows, groups), zeros, None, group, 0, kind)


def _packed_int4(weight: Any) -> QuantizedWeight | None:
    if weight.qdata.device.type != "opencl":
        return None
    return _weight(weight.qdata, "affine4", weight.shape, weight.scale.t(), weight.zero_point.t())


def _packed_int8(weight: Any) -> QuantizedWeight | None:
    is_plain = weight.qdata.dim() == 2 and weight.qdata.is_contiguous() and weight.qdata.device.type == "opencl"
    activation = getattr(weight, "act_quant_kwargs", None) or getattr(weight, "activation_quantization", None)
    # Rows of one scale each; a single scale for all of them is repeated.
    if not is_plain or activation is not None or weight.block_size[0] not in (1, weight.qdata.shape[0]):
        return None
    return _weight(weight.qdata, "affine8", weight.qdata.shape, weight.scale, weight.zero_point)


def _from_hp(original: Callable[..., Any], cls: Any, w: Tensor, block_size: list[int]) -> Any:
    """Quantise a weight ``[rows, columns]`` in groups of columns to integers from 0 to 15.

    ``qdata`` is ``[rows, columns / 8]``, of int32, with the even column of each byte in its lower half.
    """
    if w.device.type != "opencl":
        return original(cls, w, block_size)
    if w.dim() != 2 or w.shape[1] % _CHUNK or block_size[0] != 1:
        raise NotImplementedError(
            f"Int4PlainInt32Tensor on opencl: expected a weight [rows, columns] with a multiple of {_CHUNK} columns, "
            f"in groups of columns, but got shape {tuple(w.shape)} and blocks {list(block_size)}"
        )
    primitives = importlib.import_module("torchao.quantization.quant_primitives")
    limits = torch.int32, 0, 15
    options = {"eps": 1e-6, "scale_dtype": w.dtype, "zero_point_dtype": torch.int32}
    scale, zero = primitives.choose_qparams_affine(w, primitives.MappingType.ASYMMETRIC, block_size, *limits, **options)
    codes = primitives.quantize_affine(w, block_size, scale, zero, *limits).to(torch.uint8)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).contiguous().view(torch.int32)
    scale, zero = (t.reshape(w.shape[0], -1).t().contiguous() for t in (scale, zero))
    return cls(packed, scale, zero.to(torch.int8), block_size, w.shape)


_PACKED: dict[str, Callable[[Any], QuantizedWeight | None]] = {
    "int4.int4_plain_int32_tensor:Int4PlainInt32Tensor": _packed_int4,
    "int8.int8_tensor:Int8Tensor": _packed_int8,
    "intx.intx_unpacked_to_int8_tensor:IntxUnpackedToInt8Tensor": _packed_int8,
}
