"""Sorting and sums by index at the sizes where kernels change their algorithm."""

import pytest
import torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int16, torch.uint8)
# Merged runs, rows in one piece, and one row in several pieces.
SHAPES = ((3, 100), (5, 1000), (1, 70000))


def with_ties(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Values with repetitions, both zeros, infinities and NaN or the limits of the dtype."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randint(0, 100, shape, generator=generator).to(dtype)
    flat = numbers.view(-1)
    if dtype.is_floating_point:
        flat -= 50
        for place, value in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, -0.0)):
            flat[place :: 31 + place] = value
    else:
        flat[::31], flat[1::31] = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return numbers


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sort_is_stable(dtype: torch.dtype, shape: tuple[int, ...], descending: bool, device: torch.device) -> None:
    x = with_ties(dtype, *shape)
    expected = x.sort(dim=-1, stable=True, descending=descending)
    found = x.to(device).sort(dim=-1, stable=True, descending=descending)
    assert torch.equal(found.indices.cpu(), expected.indices)
    torch.testing.assert_close(found.values.cpu(), expected.values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(("shape", "k"), [((3, 1000), 7), ((3, 1000), 400), ((1, 70000), 20), ((1, 70000), 9000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_topk_begins_the_sort(
    dtype: torch.dtype, shape: tuple[int, ...], k: int, largest: bool, device: torch.device
) -> None:
    x = with_ties(dtype, *shape)
    expected = x.sort(dim=-1, stable=True, descending=largest)
    found = x.to(device).topk(k, largest=largest)
    assert torch.equal(found.indices.cpu(), expected.indices[:, :k])
    torch.testing.assert_close(found.values.cpu(), expected.values[:, :k], rtol=0, atol=0, equal_nan=True)


def test_sort_into_its_input(device: torch.device) -> None:
    x = with_ties(torch.float32, 4, 300)
    ours, places = x.to(device), torch.empty(0, dtype=torch.long, device=device)
    torch.sort(ours, stable=True, dim=1, out=(ours, places))
    expected = x.sort(dim=1, stable=True)
    assert torch.equal(places.cpu(), expected.indices)
    torch.testing.assert_close(ours.cpu(), expected.values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("elements", [10, 5000, 70001])
def test_bincount_of_few_bins(elements: int, device: torch.device) -> None:
    x = torch.randint(0, 50, (elements,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(x.to(device).bincount().cpu(), x.bincount())
    weights = x.double() + 0.5
    assert torch.equal(x.to(device).bincount(weights.to(device)).cpu(), x.bincount(weights))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
def test_scatter_add_along(dtype: torch.dtype, dim: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-9, 9, (60, 70), generator=generator).to(dtype)
    index = torch.randint(0, 60, (60, 70), generator=generator)
    expected = torch.zeros_like(x).scatter_add_(dim, index, x)
    assert torch.equal(
        torch.zeros_like(x, device=device).scatter_add_(dim, index.to(device), x.to(device)).cpu(), expected
    )


def test_index_add_of_short_rows(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-9, 9, (500, 37), generator=generator).bfloat16()
    index = torch.randint(0, 300, (500,), generator=generator)
    expected = torch.zeros(300, 37, dtype=torch.bfloat16).index_add_(0, index, x)
    found = torch.zeros(300, 37, dtype=torch.bfloat16, device=device).index_add_(0, index.to(device), x.to(device))
    assert torch.equal(found.cpu(), expected)


def test_places_are_checked_in_copies(device: torch.device) -> None:
    index = torch.zeros(5000, dtype=torch.long)
    index[4999] = 7
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 7"):
        torch.zeros(7, device=device).index_add_(0, index.to(device), torch.ones(5000, device=device))


@pytest.mark.parametrize("width", [1, 16, 37])
@pytest.mark.parametrize("scatters", [False, True])
def test_sums_of_short_rows_are_made_in_order(scatters: bool, width: int, device: torch.device) -> None:
    """If a CPU's cores share the rows of the result, each is summed in order, and out-of-range indices are found."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3000, width, generator=generator)
    index = torch.randint(0, 2000, (3000,), generator=generator)

    def add(where: torch.device | str, index: torch.Tensor) -> torch.Tensor:
        out, rows = torch.ones(2 * 2000, width, device=where)[::2], x.to(where)
        index = index.to(where)
        return out.scatter_add_(0, index[:, None].expand_as(x), rows) if scatters else out.index_add_(0, index, rows)

    torch.testing.assert_close(add(device, index).cpu(), add("cpu", index))
    index[2999] = 2000
    with pytest.raises((IndexError, RuntimeError), match="index 2000 is out of bounds for dimension 0 with size 2000"):
        add(device, index)


@pytest.mark.parametrize("shape", [(7,), (5000,), (70, 80)], ids=str)
def test_masked_select(shape: tuple[int, ...], device: torch.device) -> None:
    x = torch.arange(torch.Size(shape).numel()).view(shape)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.5
    for chosen in (mask, torch.zeros_like(mask), torch.ones_like(mask)):
        assert torch.equal(x.to(device).masked_select(chosen.to(device)).cpu(), x.masked_select(chosen))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64], ids=str)
def test_a_mask_is_of_bools(dtype: torch.dtype, device: torch.device) -> None:
    for where in (device, torch.device("cpu")):
        x, mask = torch.zeros(4, device=where), torch.ones(4, dtype=dtype, device=where)
        with pytest.raises(RuntimeError, match="masked_select: expected BoolTensor for mask"):
            x.masked_select(mask)
        with pytest.raises(RuntimeError, match="masked_scatter_ only supports boolean masks, but got mask with dtype"):
            x.masked_scatter_(mask, torch.ones(4, device=where))


@pytest.mark.parametrize("shape", [(300, 16), (3, 31), (9, 32), (2, 33)], ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_short_rows_are_sorted(shape: tuple[int, ...], descending: bool, device: torch.device) -> None:
    x = with_ties(torch.float32, *shape) // 7
    expected = x.sort(dim=1, stable=True, descending=descending)
    found = x.to(device).sort(dim=1, stable=True, descending=descending)
    assert torch.equal(found.indices.cpu(), expected.indices)
    torch.testing.assert_close(found.values.cpu(), expected.values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", [(3, 20), (4, 127), (5, 1000), (1, 70000), (2, 40001)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_kthvalue_of_every_rank(dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    length = shape[1]
    x = with_ties(dtype, *shape)
    expected = x.sort(dim=1, stable=True)
    for rank in (0, length // 3, length // 2, length - 1):
        found = x.to(device).kthvalue(rank + 1, dim=1)
        assert torch.equal(found.indices.cpu(), expected.indices[:, rank])
        torch.testing.assert_close(found.values.cpu(), expected.values[:, rank], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1000, 70000])
def test_kthvalue_with_ties(length: int, dtype: torch.dtype, device: torch.device) -> None:
    x = torch.full((2, length), 3, dtype=dtype)
    x[1, length // 2] = 4
    found = x.to(device).kthvalue(length // 2 + 1, dim=1)
    assert found.values.tolist() == [3, 3] and found.indices.tolist() == [length // 2, length // 2 + 1]
    assert x.to(device).kthvalue(length, dim=1).indices.tolist() == [length - 1, length // 2]


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("shape", [(7,), (30, 9), (6, 300), (70000,)], ids=str)
@pytest.mark.parametrize("with_nan", [False, True])
def test_medians(name: str, shape: tuple[int, ...], with_nan: bool, device: torch.device) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    if with_nan:
        x[..., 2::5] = torch.nan
        x[0] = torch.nan
    ours, median = x.to(device), getattr(torch, name)
    torch.testing.assert_close(median(ours).cpu(), median(x), rtol=0, atol=0, equal_nan=True)
    for dim in range(x.dim()):
        for keepdim in (False, True):
            found = median(ours, dim, keepdim=keepdim)
            expected = median(x, dim, keepdim=keepdim).values
            torch.testing.assert_close(found.values.cpu(), expected, rtol=0, atol=0, equal_nan=True)
            # Any index of the value is valid.
            places = found.indices.cpu() if keepdim else found.indices.cpu().unsqueeze(dim)
            picked = x.gather(dim, places)
            torch.testing.assert_close(
                picked if keepdim else picked.squeeze(dim), expected, rtol=0, atol=0, equal_nan=True
            )


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_unique_keeps_rows_with_nan_apart(columns: int, device: torch.device) -> None:
    x = torch.randint(0, 3, (200, columns), generator=torch.Generator().manual_seed(0)).float()
    x[x == 2] = torch.nan
    plain = x[~x.isnan().any(1)]
    found, inverse, counts = (t.cpu() for t in x.to(device).unique(dim=0, return_inverse=True, return_counts=True))
    assert len(found) == len(x) - len(plain) + len(plain.unique(dim=0))
    assert torch.equal(found[inverse].nan_to_num(7), x.nan_to_num(7))
    assert torch.equal(counts, inverse.bincount())


@pytest.mark.parametrize("dtype", DTYPES)
def test_median_of_an_empty_tensor(dtype: torch.dtype, device: torch.device) -> None:
    nothing = torch.empty(0, dtype=dtype)
    assert torch.equal(nothing.to(device).median().cpu().nan_to_num(7), nothing.median().nan_to_num(7))
