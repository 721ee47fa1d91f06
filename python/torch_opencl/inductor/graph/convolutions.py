"""Convolutions that can be fused with following operations."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch._inductor import config, dependencies, ir
from torch._inductor.kernel.conv import conv_layout
from torch._inductor.utils import sympy_product
from torch._inductor.virtualized import V, ops

from . import epilogues

# stride, padding and dilation
Geometry = tuple[list[int], list[int], list[int]]


class Convolution(epilogues.Gemm):
    """A convolution of a batch, in one to three dimensions.

    Attributes:
        geometry: stride, padding and dilation.
        groups: of channels.
        is_channels_last: the channels of its output lie innermost.
    """

    def __init__(
        self, layout: ir.Layout, inputs: list[Any], geometry: Geometry, groups: int, is_channels_last: bool
    ) -> None:
        super().__init__(layout, inputs, "convolution")
        self.geometry = geometry
        self.groups = groups
        self.is_channels_last = is_channels_last
        self._is_allocated = True

    def should_allocate(self) -> bool:
        """Return whether the wrapper allocates the output: the eager operator allocates its own."""
        return self._is_allocated

    def extract_read_writes(self, normalize: bool = False) -> dependencies.ReadWrites:
        """Declare that the output is written in memory order, as following operations read it."""

        def store(index: Sequence[Any], _: Any) -> Any:
            return ops.store(self.get_name(), index[0], "fake")

        flat = dependencies.extract_read_writes(store, [sympy_product(self.get_size())], (), normalize=normalize)
        return dataclasses.replace(super().extract_read_writes(normalize), writes=flat.writes)

    def eager_lines(self) -> list[str]:
        """The call of the eager operator, and a check of its layout."""
        self._is_allocated = False
        name, operator = self.get_name(), "torch.ops.aten.convolution.default"
        stride, padding, dilation = self.geometry
        geometry = f"{stride}, {padding}, {dilation}, False, {[0] * len(stride)}, {self.groups}"
        lines = [f"{name} = {operator}({', '.join(self._operands())}, {geometry})"]
        if config.size_asserts:
            tuple_of = V.graph.wrapper_code.codegen_python_shape_tuple
            shape = f"{tuple_of(self.get_size())}, {tuple_of(self.get_stride())}"
            lines.append(f"assert_size_stride({name}, {shape}, {operator!r})")
        return lines

    def fused_call(self) -> tuple[str, list[str]]:
        """The operands, the geometry, and the layout of the output."""
        return "convolution", [*self._operands(), *map(str, (*self.geometry, self.groups, self.is_channels_last))]

    def _operands(self) -> list[str]:
        input, weight, *bias = self.references()
        return [input, weight, *(bias or ["None"])]


def lowered(input: Any, weight: Any, bias: Any, parameters: tuple[Sequence[Any], ...], groups: Any) -> Any:
    """Lower a convolution to a template.

    Args:
        input: a batch of images.
        weight: of shape (output channels, input channels of a group, kernel).
        bias: a value for each output channel, or None.
        parameters: stride, padding and dilation.
        groups: of channels.

    Returns:
        The result; None if the convolution is not lowered here.
    """
    geometry = _integers(parameters, len(weight.get_size()) - 2)
    operands = [input, weight] if bias is None else [input, weight, bias]
    if geometry is None or not isinstance(groups, int) or not epilogues.is_served(operands):
        return None
    if not _is_gemm(weight.get_size(), groups) or any(size == 0 for size in input.get_size()):
        return None
    inputs = [ir.ExternKernel.realize_input(operand) for operand in operands]
    for operand in inputs:
        operand.freeze_layout()
    layout = conv_layout(*inputs[:2], None, *geometry, False, [0] * len(geometry[0]), groups)
    is_last = _is_channels_last(layout, inputs[0].get_layout())
    if is_last is None:
        return None
    return ir.TensorBox.create(Convolution(layout, inputs, geometry, groups, is_last))


def _integers(lists: tuple[Sequence[Any], ...], dims: int) -> Any:
    """Lists with a value for each spatial dimension; None if a value is not known."""
    if not all(isinstance(value, (int, sympy.Integer)) for values in lists for value in values):
        return None
    whole = tuple([int(value) for value in values] * (dims if len(values) == 1 else 1) for values in lists)
    return whole if all(len(values) == dims for values in whole) else None


def _is_gemm(weight_size: Sequence[Any], groups: int) -> bool:
    """Return whether a convolution runs as a GEMM kernel, which supports epilogues."""
    if not all(isinstance(size, (int, sympy.Integer)) for size in weight_size):
        return False
    out_channels, in_channels = map(int, weight_size[:2])
    return torch.ops.torch_opencl.convolution_is_gemm(out_channels // groups, in_channels)


def _is_channels_last(layout: ir.Layout, input: ir.Layout) -> bool | None:
    """Return whether a dense output is channels-last; None for a layout that our kernels do not write.

    An output of one position is both, and takes the input's layout so that the input need not be copied.
    """
    found = [is_last for is_last in (False, True) if _is_dense(layout, is_last)]
    if len(found) > 1:
        return _is_dense(input, True) and not _is_dense(input, False)
    return found[0] if found else None


def _is_dense(layout: ir.Layout, is_last: bool) -> bool:
    """Return whether the elements are dense, with channels innermost or as in a contiguous tensor."""
    dims = range(len(layout.size))
    if is_last and len(dims) < 4:
        return False
    expected: Any = sympy.S.One
    for dim in reversed((0, *dims[2:], 1) if is_last else dims):
        size, stride = layout.size[dim], layout.stride[dim]
        if size != 1 and not V.graph.sizevars.statically_known_equals(stride, expected):
            return False
        expected = expected * size
    return True
