"""Sliding windows of images and dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch._prims_common import get_computation_dtype

from ._common import on_host

aten = torch.ops.aten


def im2col(
    self: Tensor, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """Return the windows of each image as columns."""
    is_image = self.dim() in (3, 4) and prod(self.shape[-3:]) > 0
    if not is_image or not _window_counts(self.shape[-2:], kernel_size, dilation, padding, stride):
        return on_host(aten.im2col, self, kernel_size, dilation, padding, stride)
    images = self if self.dim() == 4 else self.unsqueeze(0)
    if any(padding):
        down, right = padding
        images = torch.constant_pad_nd(images, [right, right, down, down])
    windows = _windows(images, kernel_size, dilation, stride).clone(memory_format=torch.contiguous_format)
    columns = windows.flatten(4).flatten(1, 3)
    return columns if self.dim() == 4 else columns.squeeze(0)


def col2im(
    self: Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """Return images in which each element is the sum of its copies in the columns."""
    counts = _window_counts(output_size, kernel_size, dilation, padding, stride)
    are_columns = self.dim() in (2, 3) and self.size(-2) > 0 and prod(counts) == self.size(-1)
    if not counts or not are_columns or self.size(-2) % prod(kernel_size):
        return on_host(aten.col2im, self, output_size, kernel_size, dilation, padding, stride)
    columns = self if self.dim() == 3 else self.unsqueeze(0)
    (height, width), (down, right) = output_size, padding
    sizes = columns.size(0), columns.size(1) // prod(kernel_size), height + 2 * down, width + 2 * right
    # Sums of 16-bit floats would be rounded at each addition.
    padded = torch.zeros(sizes, dtype=get_computation_dtype(self.dtype), device=self.device)
    windows = _windows(padded, kernel_size, dilation, stride)
    # Windows overlap, but the elements at one position of all windows do not.
    for targets, rows in zip(windows.unbind(2), columns.reshape(windows.shape).unbind(2), strict=True):
        for target, elements in zip(targets.unbind(2), rows.unbind(2), strict=True):
            target.add_(elements)
    images = padded.narrow(2, down, height).narrow(3, right, width)
    return (images if self.dim() == 3 else images.squeeze(0)).to(self.dtype).contiguous()


def unfold_backward(grad_in: Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Tensor:
    """Return the sum of the gradients of all windows that contain an element."""
    overlap = step < size
    # Sums of 16-bit floats would be rounded at each addition.
    dtype = get_computation_dtype(grad_in.dtype) if overlap else grad_in.dtype
    grad = torch.zeros(input_sizes, dtype=dtype, device=grad_in.device)
    if not overlap:
        grad.unfold(dim, size, step).copy_(grad_in)
        return grad
    dim %= len(input_sizes)
    # Windows overlap, but every `apart`-th ones do not: few launches, each over dense runs.
    apart = -(-size // step)
    for first in range(min(grad_in.size(dim), apart)):
        start = first * step
        windows = grad.narrow(dim, start, grad.size(dim) - start).unfold(dim, size, apart * step)
        windows.add_(aten.slice(grad_in, dim, first, None, apart))
    return grad.to(grad_in.dtype)


def _window_counts(
    sizes: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> list[int]:
    """Count the windows along both dimensions of an image; the list is empty if the arguments are invalid."""
    lists = (sizes, kernel_size, dilation, padding, stride)
    if any(len(values) != 2 for values in lists) or min(*kernel_size, *dilation, *stride) < 1 or min(padding) < 0:
        return []
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in zip(*lists, strict=True)]
    return counts if min(counts) > 0 else []


def _windows(images: Tensor, kernel_size: Sequence[int], dilation: Sequence[int], stride: Sequence[int]) -> Tensor:
    """View a batch of padded images as [N, C, kernel height, kernel width, rows, columns]."""
    for dim in (0, 1):
        images = images.unfold(dim + 2, dilation[dim] * (kernel_size[dim] - 1) + 1, stride[dim])
        if dilation[dim] > 1:
            images = images[..., :: dilation[dim]]
    return images.permute(0, 1, 4, 5, 2, 3)
