"""Softmax of COO tensors: of the elements that are given, along one dimension."""

import math

import torch
from torch import Tensor
from torch._prims_common import canonicalize_dim, get_computation_dtype

from ._sparse import coo, find, flat, flatten_indices, masked


class _Pools:
    """Elements that differ along one sparse dimension alone share a pool."""

    def __init__(self, tensor: Tensor, dim: int) -> None:
        indices = tensor._indices()
        rest = [other for other in range(indices.shape[0]) if other != dim]
        self.of_element, self.count = indices.new_zeros(indices.shape[1]), 1
        if rest:
            flat = flatten_indices(torch.stack([indices[each] for each in rest]), [tensor.shape[each] for each in rest])
            pools, self.of_element = torch._unique2(flat, sorted=True, return_inverse=True)[:2]
            self.count = pools.shape[0]

    def sums(self, rows: Tensor) -> Tensor:
        """Return for each element the sum of its pool."""
        sums = rows.new_zeros(self.count, rows.shape[1])
        return sums.index_add_(0, self.of_element, rows).index_select(0, self.of_element)

    def largest(self, rows: Tensor) -> Tensor:
        """Return for each element the largest one of its pool."""
        largest = rows.new_full((self.count, rows.shape[1]), -math.inf)
        return largest.index_reduce_(0, self.of_element, rows, "amax").index_select(0, self.of_element)


def _rows(values: Tensor) -> Tensor:
    """Return values with their dense dimensions flattened, in the dtype that they are computed in."""
    return values.reshape(values.shape[0], -1).to(get_computation_dtype(values.dtype))


def _with_values(tensor: Tensor, rows: Tensor) -> Tensor:
    values = tensor._values()
    return coo(tensor._indices(), rows.to(values.dtype).view(values.shape), tensor.shape, is_coalesced=True)


def _softmax(self: Tensor, dim: int, half_to_float: bool, is_log: bool) -> Tensor:
    name = "log_softmax" if is_log else "softmax"
    if half_to_float:
        raise RuntimeError(f"{name} with half to float conversion is not supported on sparse tensors")
    dim = canonicalize_dim(self.dim(), dim)
    input = self.coalesce()
    values, dense_dim = input._values(), dim - input.sparse_dim() + 1
    if values.numel() == 0:
        return _with_values(input, values.clone())
    if dense_dim > 0:
        return _with_values(input, getattr(values, name)(dense_dim))
    pools, x = _Pools(input, dim), _rows(values)
    shifted = x - pools.largest(x)
    exponentials = shifted.exp()
    totals = pools.sums(exponentials)
    return _with_values(input, shifted - totals.log() if is_log else exponentials / totals)


def _backward(grad_output: Tensor, output: Tensor, dim: int, is_log: bool) -> Tensor:
    is_sparse = grad_output.is_sparse and output.is_sparse
    if not is_sparse or grad_output.shape != output.shape or grad_output.sparse_dim() != output.sparse_dim():
        raise RuntimeError(
            "sparse softmax: expected grad and output to be sparse tensors of one shape, but got "
            f"{list(grad_output.shape)} and {list(output.shape)}"
        )
    dim = canonicalize_dim(output.dim(), dim)
    source, results = grad_output.coalesce(), output.coalesce()
    values, dense_dim = results._values(), dim - results.sparse_dim() + 1
    if values.numel() == 0 or source._nnz() == 0:
        return _with_values(results, torch.zeros_like(values))
    # An element without a gradient has a gradient of zero.
    position, found = find(flat(source), flat(results))
    grad = masked(source._values().index_select(0, position), found)
    if dense_dim > 0:
        dense = torch._log_softmax_backward_data if is_log else torch._softmax_backward_data
        return _with_values(results, dense(grad, values, dense_dim, values.dtype))
    pools, y, g = _Pools(results, dim), _rows(values), _rows(grad)
    return _with_values(results, g - y.exp() * pools.sums(g) if is_log else y * (g - pools.sums(y * g)))


def softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return the softmax of the given elements along `dim`."""
    return _softmax(self, dim, half_to_float, is_log=False)


def log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return the logarithm of the softmax of the given elements along `dim`."""
    return _softmax(self, dim, half_to_float, is_log=True)


def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, self: Tensor) -> Tensor:
    """Return the gradient of `softmax`."""
    return _backward(grad_output, output, dim, is_log=False)


def log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, self: Tensor) -> Tensor:
    """Return the gradient of `log_softmax`."""
    return _backward(grad_output, output, dim, is_log=True)
