"""Bags of embeddings beyond OpInfo's samples, and embedding layers."""

import pytest
import torch
from op_samples import NoFallback, assert_same
from op_table import FLOATING, covers
from releases import RELEASE, release
from torch.nn import functional as F

INDICES = (4, 1, 9, 2, 2, 0, 9, 7)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@covers("_embedding_bag_dense_backward", "_embedding_bag_forward_only")
def test_bags(mode: str, index_dtype: torch.dtype, dtype: torch.dtype, device: torch.device) -> None:
    """Empty bags at both ends and in the middle, padding, include_last_offset; rows of 20 columns and of one."""

    def run(where: torch.device, columns: int, last: bool, padding: int | None) -> list[torch.Tensor]:
        weight = torch.randn(10, columns, generator=torch.Generator().manual_seed(columns)).to(where, dtype)
        weight.requires_grad_()
        offsets = torch.tensor([0, 0, 3, 3, 8], dtype=index_dtype, device=where)
        result = F.embedding_bag(
            torch.tensor(INDICES, dtype=index_dtype, device=where),
            weight,
            offsets,
            mode=mode,
            include_last_offset=last,
            padding_idx=padding,
        )
        weights = torch.linspace(-1, 1, result.numel()).view(result.shape).to(where, dtype)
        with torch.no_grad():
            again = F.embedding_bag(torch.tensor([INDICES], device=where), weight, mode=mode)
        return [result, again, *torch.autograd.grad(result, weight, weights)]

    for columns, last, padding in ((20, False, None), (20, True, 9), (1, False, 2)):
        with NoFallback():
            actual = run(device, columns, last, padding)
        # The CPU rounds sums of 16-bit gradients at other points.
        limit = 2e-3 if dtype.itemsize == 2 else 0
        assert_same(actual, run(torch.device("cpu"), columns, last, padding), rtol=limit, atol=limit)


@pytest.mark.parametrize("padding", [None, 2])
@covers("_embedding_bag_per_sample_weights_backward")
def test_weighted_bags(padding: int | None, device: torch.device) -> None:
    def run(where: torch.device) -> list[torch.Tensor]:
        weight = torch.linspace(-1, 1, 50).view(10, 5).to(where).requires_grad_()
        factors = torch.linspace(0, 2, len(INDICES)).to(where).requires_grad_()
        indices, offsets = torch.tensor(INDICES, device=where), torch.tensor([0, 3, 5], device=where)
        result = F.embedding_bag(indices, weight, offsets, mode="sum", per_sample_weights=factors, padding_idx=padding)
        return [result, *torch.autograd.grad(result.square().sum(), [weight, factors])]

    expected = run(torch.device("cpu"))
    with NoFallback():
        assert_same(run(device), expected)


def test_per_sample_weights_of_other_modes_are_refused(device: torch.device) -> None:
    weight, index = torch.ones(3, 2, device=device), torch.tensor([0, 1], device=device)
    with pytest.raises((RuntimeError, NotImplementedError), match="per_sample_weights"):
        torch.ops.aten._embedding_bag(weight, index, index[:1], False, 1, False, torch.ones(2, device=device))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("offsets", "says"),
    [
        ([1], r"offsets\[0\] has to be 0.* However, got 1"),
        ([2, 0], r"offsets\[0\] has to be 0.* However, got 2"),
        ([-1], r"offsets\[0\] has to be 0.* However, got -1"),
        ([0, 5], r"offsets\[-1\] can not be greater than input's length 3 but got offsets\[-1\] of 5"),
    ],
)
def test_bad_offsets_are_refused(offsets: list[int], says: str, mode: str, last: bool, device: torch.device) -> None:
    for where in (torch.device("cpu"), device):
        indices, starts = torch.tensor([0, 1, 2], device=where), torch.tensor(offsets, device=where)
        with pytest.raises(RuntimeError, match=says):
            F.embedding_bag(indices, torch.ones(4, 2, device=where), starts, mode=mode, include_last_offset=last)
            torch.opencl.synchronize()


def test_decreasing_offsets_are_refused(device: torch.device) -> None:
    indices, starts = torch.tensor([0, 1, 2], device=device), torch.tensor([0, 2, 1], device=device)
    result = F.embedding_bag(indices, torch.ones(4, 2, device=device), starts, mode="sum")
    with pytest.raises(RuntimeError, match="got 1 after 2"):
        result.cpu()


@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("wrong", [4, -1])
def test_an_index_out_of_range_is_a_runtime_error(
    wrong: int, mode: str, padding: int | None, device: torch.device
) -> None:
    for where in (torch.device("cpu"), device):
        indices, starts = torch.tensor([1, wrong], device=where), torch.tensor([0], device=where)
        with pytest.raises(RuntimeError, match=f"{wrong}"):
            F.embedding_bag(indices, torch.ones(4, 2, device=where), starts, mode=mode, padding_idx=padding).cpu()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (lambda w, i: (w, i.float(), i[:1]), "argument #1 'indices' to have one of the following scalar types"),
        (lambda w, i: (w, i, i[:1].float()), "argument #1 '(indices|offsets)' to have one of the following"),
        (lambda w, i: (w.long(), i, i[:1]), "argument #1 'weight' to have one of the following scalar types"),
        (lambda w, i: (w[0], i, i[:1]), "weight has to be a 2D Tensor, but got Tensor of dimension 1"),
        (lambda w, i: (w, i, i[:1], False, 7), "`mode` must be sum, mean, or max"),
        (lambda w, i: (w, i, i[:0], False, 0, False, None, True), "number of offset should be at least 1"),
    ],
)
def test_invalid_arguments_are_refused_as_on_the_cpu(arguments, says: str, device: torch.device) -> None:
    # An invalid mode ends the process on the CPU of PyTorch 2.11.
    ends_on_cpu = "mode" in says and release("2.13") > RELEASE
    for where in [device] if ends_on_cpu else [torch.device("cpu"), device]:
        weight, indices = torch.ones(4, 2, device=where), torch.tensor([0, 1], device=where)
        with pytest.raises(RuntimeError, match=says):
            torch.embedding_bag(*arguments(weight, indices))


@pytest.mark.parametrize("index", [1, -1])
def test_indices_into_rows_without_elements_are_checked(device, index):
    with pytest.raises(RuntimeError, match="num_embeddings"):
        F.embedding_bag(torch.tensor([[index]], device=device), torch.empty(1, 0, device=device)).sum().item()
