"""Matmuls with weights of 2 to 8 bits, in the formats in which other libraries store them.

A :class:`QuantizedWeight` holds the codes and scales of a matrix. Up to 16 rows of input (4 on CPUs) are multiplied
while the weight is unpacked in registers, so that only the packed bytes are read; with more rows the weight is unpacked
once, for a matmul. Sums are in float32.

The formats are

- ``affine4``: two unsigned 4-bit integers to a byte, the lower half first, with ``scales``, and ``zeros`` or ``bias``;
- ``affine8``: signed bytes, with ``scales`` and ``zeros``;
- ``tiles4``: 4-bit integers, int32 of shape ``[rows / 8, k / (16 * tiles), 32, tiles / 2]``, as
  ``torch._convert_weight_to_int4pack`` orders them for 2, 4 or 8 tiles; otherwise as ``affine4``;
- ``table4``: two positions in ``table`` to a byte, the upper half first, with ``scales`` of blocks that ignore rows;
- ``q4_0``, ``q4_1``, ``q5_0``, ``q5_1``, ``q8_0``, ``q2_k``, ``q3_k``, ``q4_k``, ``q5_k``, ``q6_k`` and ``iq4_nl``:
  ggml's blocks, as in GGUF files, which have their scales.

The formats of ggml are described by the source of the Python package ``gguf``; ``table4`` is that of bitsandbytes
(Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", 2023, for the values of NF4).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["GGUFEmbedding", "GGUFLinear", "QuantizedLinear", "QuantizedWeight", "quantize_linear_layers"]


@dataclass(frozen=True)
class QuantizedWeight:
    """A quantised matrix of shape ``[rows, columns]``.

    Attributes:
        codes: bytes of any dtype, dense; for ``tiles4`` int32 of that shape. A row has a multiple of 32 columns, of
            256 in the formats that end with ``_k``. Formats of GGUF start at an even address.
        format: one of the formats above.
        shape: rows and columns, the ``[out_features, in_features]`` of a linear layer.
        scales: float32, float16 or bfloat16, ``[rows, groups]``, or ``[rows]`` for one group; with any strides, so that
            scales stored as ``[groups, rows]`` are given as ``scales.t()``. For ``table4``: ``[blocks]``.
        zeros: of the shape of ``scales``: float32, float16, bfloat16, uint8, or int8 to int64. For ``table4``: uint8,
            the codes of nested scales.
        table: float32, the 16 values of ``table4``. With nested scales, then the 256 values of the scales' codes and
            one that is added to all of them; ``scales`` are those of blocks of 256 such codes.
        group_size: columns of a group: a power of two from 32 on, or all columns.
        bias: subtracted from each code of ``affine4`` and ``tiles4``: 0 to 15.
        zeros_kind: "codes" if a weight is ``(code - bias - zero) * scale``, "values" if it is
            ``(code - bias) * scale + zero``, and "absent".
    """

    codes: Tensor
    format: str
    shape: tuple[int, int]
    scales: Tensor | None = None
    zeros: Tensor | None = None
    table: Tensor | None = None
    group_size: int = 0
    bias: int = 0
    zeros_kind: str = "absent"

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return ``x @ weight.T + bias``; gradients reach ``x`` and ``bias``.

        Args:
            x: ``[..., columns]``, float32, float16 or bfloat16, on the weight's device.
            bias: ``[rows]``.

        Returns:
            ``[..., rows]``, of x's dtype.

        Raises:
            RuntimeError: an argument does not fit the format; the message has the format, and what was expected.
        """
        if self.codes.device.type == "cpu":
            raise RuntimeError("QuantizedWeight.linear: the weight is on the CPU; move it by .to('opencl')")
        out = torch.ops.torch_opencl.quantized_linear(x, *self._arguments())
        return out if bias is None else out + bias.to(out.dtype)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the weight.

        Args:
            dtype: float32, float16 or bfloat16.

        Returns:
            A dense tensor of the weight's shape.

        Raises:
            RuntimeError: as for :meth:`linear`.
        """
        return torch.ops.torch_opencl.quantized_unpack(*self._arguments(), dtype)

    @property
    def device(self) -> torch.device:
        """The device of the codes."""
        return self.codes.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the scales; that of the codes if these hold the scales."""
        return self.codes.dtype if self.scales is None else self.scales.dtype

    def rows(self, indices: Tensor) -> QuantizedWeight:
        """Return some rows of a weight in one of ggml's formats, still packed.

        Args:
            indices: int64 or int32, any shape, on the weight's device; from 0 on.

        Returns:
            A weight of as many rows as there are indices.

        Raises:
            ValueError: the format is not one of ggml's.
            IndexError: an index is out of range.
        """
        if self.format not in GGUF_FORMATS:
            raise ValueError(f"QuantizedWeight.rows: weights of format {self.format} have scales in other tensors")
        packed = self.codes.view(torch.uint8).view(self.shape[0], -1)
        codes = nn.functional.embedding(indices.reshape(-1), packed)
        return replace(self, codes=codes, shape=(indices.numel(), self.shape[1]))

    def to(self, device: torch.device | str) -> QuantizedWeight:
        """Return the weight on another device."""
        moved = {
            name: tensor.to(device)
            for name in ("codes", "scales", "zeros", "table")
            if (tensor := getattr(self, name)) is not None
        }
        return replace(self, **moved)

    def _arguments(self) -> tuple[Any, ...]:
        rows, columns = self.shape
        tensors = self.codes, self.scales, self.zeros, self.table
        return (*tensors, self.format, rows, columns, self.group_size, self.bias, self.zeros_kind)


class GGUFLinear(nn.Module):
    """A linear layer whose weight stays as it is in a GGUF file.

    Args:
        data: the bytes of the tensor, as ``gguf.GGUFReader`` returns them in ``data``: uint8, any shape.
        tensor_type: ``gguf.GGMLQuantizationType`` of the tensor, or its name, such as "Q4_K".
        out_features: rows of the weight.
        in_features: columns of the weight.
        bias: ``[out_features]``, or None.

    Raises:
        ValueError: there is no kernel for the type.

    Example::

        for tensor in gguf.GGUFReader(path).tensors:
            if tensor.name == "blk.0.ffn_up.weight":
                k, n = map(int, tensor.shape)
                layer = GGUFLinear(torch.from_numpy(tensor.data), tensor.tensor_type, n, k).to("opencl")
    """

    data: Tensor

    def __init__(
        self, data: Tensor, tensor_type: Any, out_features: int, in_features: int, bias: Tensor | None = None
    ) -> None:
        super().__init__()
        self.format = _format_of("GGUFLinear", tensor_type)
        self.out_features, self.in_features = operator.index(out_features), operator.index(in_features)
        self.register_buffer("data", data.contiguous())
        self.bias = None if bias is None else nn.Parameter(bias)

    @property
    def weight(self) -> QuantizedWeight:
        """The packed weight."""
        return QuantizedWeight(self.data, self.format, (self.out_features, self.in_features))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``."""
        return self.weight.linear(x, self.bias)

    def extra_repr(self) -> str:
        """Return what ``print`` shows of the layer."""
        return f"in_features={self.in_features}, out_features={self.out_features}, format={self.format}"


class GGUFEmbedding(nn.Module):
    """An embedding table that stays as it is in a GGUF file; rows are unpacked when they are looked up.

    Args:
        data: the bytes of the tensor, as for :class:`GGUFLinear`.
        tensor_type: as for :class:`GGUFLinear`.
        num_embeddings: rows of the table.
        embedding_dim: columns of the table.
        dtype: float32, float16 or bfloat16: the dtype of the result, which ``to(dtype)`` and ``half()`` change.

    Raises:
        ValueError: there is no kernel for the type.
    """

    data: Tensor
    result: Tensor

    def __init__(
        self, data: Tensor, tensor_type: Any, num_embeddings: int, embedding_dim: int, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.format = _format_of("GGUFEmbedding", tensor_type)
        self.num_embeddings, self.embedding_dim = operator.index(num_embeddings), operator.index(embedding_dim)
        self.register_buffer("data", data.contiguous())
        # Without elements: casts of the module change its dtype.
        self.register_buffer("result", torch.empty(0, dtype=dtype, device=data.device), persistent=False)

    @property
    def weight(self) -> QuantizedWeight:
        """The packed table."""
        return QuantizedWeight(self.data, self.format, (self.num_embeddings, self.embedding_dim))

    def forward(self, ids: Tensor) -> Tensor:
        """Return ``[*ids.shape, embedding_dim]``."""
        return self.weight.rows(ids).dequantize(self.result.dtype).view(*ids.shape, self.embedding_dim)

    def extra_repr(self) -> str:
        """Return what ``print`` shows of the layer."""
        return f"{self.num_embeddings}, {self.embedding_dim}, format={self.format}"


class QuantizedLinear(nn.Module):
    """A linear layer with weights of 4 bits: a scale and an offset for each group of columns of a row.

    A weight becomes the nearest of 16 values between the least and the greatest of its group, without data. The loss of
    quality is that of ggml's q4_1 at a group size of 32, and larger for larger groups.

    Args:
        linear: the layer; its weight is float32, float16 or bfloat16, on any device.
        group_size: columns of a group: a power of two from 32 on that divides the layer's columns.

    Raises:
        ValueError: the group size is not a power of two from 32 on, or does not divide the layer's columns, or the
            layer is float64.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None
    order: Tensor | None
    bias: nn.Parameter | None

    def __init__(self, linear: nn.Linear, group_size: int = 64) -> None:
        super().__init__()
        _check_group_size(group_size)
        if not _fits(linear, group_size):
            raise ValueError(
                f"QuantizedLinear: expected a float32, float16 or bfloat16 layer whose columns are a multiple of "
                f"{group_size}, got {linear.weight.dtype} and {linear.in_features} columns"
            )
        self._keep(_rounded(linear.weight.detach(), group_size), linear.bias, None)
        self.train(linear.training)

    @classmethod
    def from_weight(
        cls, weight: QuantizedWeight, bias: Tensor | None = None, order: Tensor | None = None
    ) -> QuantizedLinear:
        """Return a layer with a weight that is quantised already.

        Args:
            weight: of the format ``affine4`` or ``affine8``.
            bias: ``[rows]``.
            order: int64, ``[columns]``: the column of the input for each column of the weight; by default the same.

        Raises:
            ValueError: the weight has another format.
        """
        if weight.format not in ("affine4", "affine8") or weight.scales is None:
            raise ValueError(f"QuantizedLinear: expected a weight of affine4 or affine8, got {weight.format}")
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._keep(weight, None if bias is None else nn.Parameter(bias.detach(), requires_grad=False), order)
        return layer

    def _keep(self, weight: QuantizedWeight, bias: nn.Parameter | None, order: Tensor | None) -> None:
        for name in ("codes", "scales", "zeros"):
            self.register_buffer(name, getattr(weight, name))
        self.register_buffer("order", order)
        self.register_parameter("bias", bias)
        self._without_tensors = replace(weight, codes=weight.codes.new_empty(0), scales=None, zeros=None)
        self.out_features, self.in_features = weight.shape

    @property
    def weight(self) -> QuantizedWeight:
        """The packed weight; with ``order``, its columns are permuted, and so are those of ``dequantize()``."""
        return replace(self._without_tensors, codes=self.codes, scales=self.scales, zeros=self.zeros)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``."""
        if self.order is not None:
            if x.shape[-1:] != (self.in_features,):
                raise RuntimeError(f"QuantizedLinear: expected x with {self.in_features} columns, got {list(x.shape)}")
            x = x.index_select(-1, self.order)
        return self.weight.linear(x, self.bias)

    def extra_repr(self) -> str:
        """Return what ``print`` shows of the layer."""
        weight, shape = self._without_tensors, f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{shape}, format={weight.format}, group_size={weight.group_size}"


def quantize_linear_layers(model: nn.Module, group_size: int = 64, keep: Sequence[str] = ("lm_head",)) -> int:
    """Replace the linear layers inside a model by layers with weights of 4 bits, in place.

    Layers of subclasses of ``nn.Linear`` and layers whose columns the group size does not divide stay as they are. A
    layer with several names stays one layer. Hooks of a replaced layer are lost.

    Args:
        model: a module whose layers are called, as opposed to one that reads their weights: the fast path of
            ``nn.TransformerEncoderLayer`` does not accept packed weights.
        group_size: as for :class:`QuantizedLinear`.
        keep: names of layers that stay as they are, as the last part of a name in ``named_modules``. A layer whose
            weight is that of an embedding belongs here.

    Returns:
        The number of layers that have been replaced.

    Raises:
        ValueError: the group size is not a power of two from 32 on.
    """
    _check_group_size(group_size)
    replaced: dict[nn.Module, QuantizedLinear] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        # Subclasses do more than the layer that replaces them.
        if not name or type(module) is not nn.Linear or name.rpartition(".")[2] in keep:
            continue
        if module not in replaced and _fits(module, group_size):
            replaced[module] = QuantizedLinear(module, group_size)
        if module in replaced:
            model.set_submodule(name, replaced[module])
    return len(replaced)


def _rounded(weight: Tensor, group_size: int) -> QuantizedWeight:
    groups = weight.float().view(weight.shape[0], -1, group_size)
    least, greatest = groups.aminmax(dim=2)
    scales = ((greatest - least) / 15).to(weight.dtype)
    zeros = least.to(weight.dtype)
    # Codes are those of the rounded scales and offsets; a group of equal weights has the scale 0.
    divisors = scales.float().clamp_min(torch.finfo(torch.float32).tiny)
    steps = (groups - zeros.float()[..., None]) / divisors[..., None]
    codes = steps.round().clamp(0, 15).to(torch.uint8).view(weight.shape)
    packed, (rows, columns) = codes[:, ::2] | codes[:, 1::2] << 4, weight.shape
    return QuantizedWeight(packed, "affine4", (rows, columns), scales, zeros, None, group_size, 0, "values")


def _check_group_size(group_size: int) -> None:
    if not isinstance(group_size, int) or group_size < 32 or group_size.bit_count() != 1:
        raise ValueError(
            f"QuantizedLinear: expected a group_size that is a power of two from 32 on, got {group_size!r}"
        )


def _fits(linear: nn.Linear, group_size: int) -> bool:
    is_packable = linear.weight.dtype in (torch.float32, torch.float16, torch.bfloat16) and linear.weight.numel() > 0
    return is_packable and linear.in_features % group_size == 0


def _format_of(layer: str, tensor_type: Any) -> str:
    name = str(getattr(tensor_type, "name", tensor_type)).lower()
    if name not in GGUF_FORMATS:
        raise ValueError(f"{layer}: no kernel for tensors of type {tensor_type}: {', '.join(GGUF_FORMATS)}")
    return name


GGUF_FORMATS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl")


def register() -> None:
    """Register shapes for ``torch.compile``, and gradients; called when the native library has been loaded."""
    library = "torch_opencl::quantized_"

    def linear(x: Tensor, codes: Tensor, scales: Any, zeros: Any, table: Any, name: str, rows: int, *_: Any) -> Tensor:
        return x.new_empty((*x.shape[:-1], rows))

    def unpack(codes: Tensor, scales: Any, zeros: Any, table: Any, name: str, rows: int, k: int, *rest: Any) -> Tensor:
        return codes.new_empty((rows, k), dtype=rest[-1])

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.dtype = inputs[0].dtype
        ctx.tensors, ctx.rest = [tensor is not None for tensor in inputs[1:5]], inputs[5:]
        ctx.save_for_backward(*(tensor for tensor in inputs[1:5] if tensor is not None))

    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        tensors = [next(saved) if present else None for present in ctx.tensors]
        weight = torch.ops.torch_opencl.quantized_unpack(*tensors, *ctx.rest, ctx.dtype)
        return (grad @ weight, *[None] * (len(tensors) + len(ctx.rest)))

    torch.library.register_fake(library + "linear", linear)
    torch.library.register_fake(library + "unpack", unpack)
    torch.library.register_autograd(library + "linear", backward, setup_context=setup_context)
