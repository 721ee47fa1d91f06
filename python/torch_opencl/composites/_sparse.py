"""What functions on sparse tensors share."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._ops import OpOverload

_SPARSE_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.SparseCPU)
_new = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors.default


def call_aten(op: OpOverload, *args: object, **kwargs: object) -> Tensor:
    """Call ATen's function for COO tensors on the CPU, which calls operators on indices and values."""
    result: Tensor = op.redispatch(_SPARSE_CPU, *args, **kwargs)
    return result


def coo(indices: Tensor, values: Tensor, size: Sequence[int], is_coalesced: bool = False) -> Tensor:
    """Return a COO tensor without checks of its invariants."""
    sparse_dim = indices.shape[0]
    tensor: Tensor = _new(
        sparse_dim,
        len(size) - sparse_dim,
        size,
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=is_coalesced,
    )
    return tensor


def assign(out: Tensor, indices: Tensor, values: Tensor, size: Sequence[int], is_coalesced: bool = False) -> Tensor:
    """Give the COO tensor `out` other contents. Unlike `copy_`, this does not copy the indices and values."""
    # Otherwise an ordinary tensor would become an inference tensor.
    with torch.inference_mode(out.is_inference()):
        out.data = coo(indices, values.to(out.dtype), size, is_coalesced)
    return out


def flatten_indices(indices: Tensor, size: Sequence[int]) -> Tensor:
    """Return the positions of elements in the flattened sparse dimensions."""
    if indices.shape[0] == 0:
        return indices.new_zeros(indices.shape[1])
    flat, *rest = indices.unbind()
    for index, extent in zip(rest, size[1:], strict=False):
        flat = torch.add(index, flat, alpha=extent)
    return flat


def flat(tensor: Tensor) -> Tensor:
    """Return the positions of the elements of a COO tensor in its flattened sparse dimensions."""
    return flatten_indices(tensor._indices(), tensor.shape)


def find(ascending: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the indices `wanted` are in `ascending`, and whether they are there."""
    position = torch.searchsorted(ascending, wanted).clamp_max_(ascending.numel() - 1)
    return position, ascending.index_select(0, position).eq(wanted)


def masked(values: Tensor, found: Tensor) -> Tensor:
    """Return `values`, with zeros for elements that are not found."""
    return torch.where(found.view(-1, *[1] * (values.dim() - 1)), values, values.new_zeros(()))


def check_cast(op: str, dtype: torch.dtype, out: Tensor) -> None:
    """Refuse a dtype that cannot be cast to the dtype of `out`."""
    if not torch.can_cast(dtype, out.dtype):
        raise RuntimeError(f"Can't convert result type {dtype} to output {out.dtype} in {op} operation")


def common_dtype(op: str, self: Tensor, other: Tensor, out: Tensor) -> torch.dtype:
    """Return the dtype that `op` computes in, which can be cast to the dtype of `out`."""
    common = torch.promote_types(self.dtype, other.dtype)
    check_cast(op, common, out)
    return common
