"""Conversions between jagged tensors, whose rows are concatenated, and padded ones."""

import torch
from torch import Tensor


def _only_offsets(op: str, offsets: list[Tensor]) -> Tensor:
    if len(offsets) != 1:
        raise RuntimeError(f"{op}(): only a single jagged dim is supported for now")
    (only,) = offsets
    if only.dim() != 1 or only.numel() == 0:
        raise RuntimeError(f"{op}(): expected offsets to be a vector, but got shape {list(only.shape)}")
    return only.long()


def jagged_to_padded(
    values: Tensor, offsets: list[Tensor], max_lengths: list[int], padding_value: float = 0.0
) -> Tensor:
    """Return [items, longest, ...]: each item's rows, and padding after them."""
    op = "_jagged_to_padded_dense_forward"
    if len(max_lengths) != 1:
        raise RuntimeError(f"{op}(): only a single jagged dim is supported for now")
    starts = _only_offsets(op, offsets)
    batch, length = starts.numel() - 1, max_lengths[0]
    sizes = [batch, length, *values.shape[1:]]
    if values.numel() == 0 or batch * length == 0:
        return values.new_full(sizes, padding_value)
    index = starts[:-1, None] + torch.arange(length, device=starts.device)
    is_padding = index >= starts[1:, None]
    rows = values.index_select(0, index.masked_fill_(is_padding, 0).flatten()).view(sizes)
    # A number may be out of the range of the dtype.
    padding = torch.full((), padding_value, dtype=values.dtype, device="cpu")
    return rows.masked_fill_(is_padding.view(batch, length, *[1] * (values.dim() - 1)), padding)


def padded_to_jagged(dense: Tensor, offsets: list[Tensor], total_L: int | None = None) -> Tensor:
    """Return the rows of all items without the padding."""
    op = "_padded_dense_to_jagged_forward"
    ends = _only_offsets(op, offsets)
    batch = ends.numel() - 1
    if dense.dim() < 2 or dense.size(0) != batch:
        shape = list(dense.shape)
        raise RuntimeError(f"{op}(): expected a padded tensor of {batch} batch items, but got shape {shape}")
    length, total = dense.size(1), 0
    if batch > 0:
        total, longest = torch.stack((ends[-1], ends.diff().max())).tolist()
        if longest > length:
            limit = f"when max length specified by padded input is {length}"
            raise RuntimeError(f"{op}(): found batch item of length {longest} {limit}")
    if total_L is not None and total_L != total:
        raise RuntimeError(f"{op}(): final offset should match total_L value")
    row = torch.arange(total, device=ends.device)
    item = torch.searchsorted(ends[1:], row, right=True)
    position = row - ends.index_select(0, item)
    return dense.reshape(batch * length, *dense.shape[2:]).index_select(0, item * length + position)
