"""Reading and writing by index: kernels that process several indices at once, and self-overlapping tensors."""

import pytest
import torch
from float64 import computed
from op_samples import NoFallback
from op_table import FLOATING, covers

# Less than a vector of indices, some vectors with a remainder, and more than a work-item processes.
LENGTHS = (3, 8, 29, 5000)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128], ids=str)
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
def test_gather_and_take(length: int, dtype: torch.dtype, index_dtype: torch.dtype, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 99, (7, 11), generator=generator).to(dtype)
    columns = torch.randint(11, (7, length), generator=generator)
    picked = torch.randint(-11, 11, (length,), generator=generator).to(index_dtype)
    assert torch.equal(x.to(device).gather(1, columns.to(device)).cpu(), x.gather(1, columns))
    assert torch.equal(x.to(device).t().gather(0, columns.t().to(device)).cpu(), x.t().gather(0, columns.t()))
    assert torch.equal(x.to(device).take(columns.to(device)).cpu(), x.take(columns))
    assert torch.equal(x.to(device)[:, picked.to(device)].cpu(), x[:, picked])


@pytest.mark.parametrize("length", LENGTHS)
def test_pairs_of_indices(length: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 11, generator=generator)
    rows = torch.randint(-7, 7, (length, 13), generator=generator)
    columns = torch.randint(-11, 11, (13, length), generator=generator).t()
    ours = x.to(device)
    found = ours[rows.to(device), columns.to(device)]
    assert torch.equal(found.cpu(), x[rows, columns])
    assert torch.equal(ours[rows.to(device), columns[:, :1].to(device)].cpu(), x[rows, columns[:, :1]])
    ones = torch.ones(length, 13)
    ours.index_put_((rows.to(device), columns.to(device)), ones.to(device), accumulate=True)
    torch.testing.assert_close(ours.cpu(), x.index_put((rows, columns), ones, accumulate=True))


@pytest.mark.parametrize("place", [0, 5, 4095, 4998])
@pytest.mark.parametrize("index", [7, -8])
def test_an_index_out_of_range_is_named(place: int, index: int, device: torch.device) -> None:
    indices = torch.zeros(5000, dtype=torch.long)
    indices[place] = index
    x = torch.arange(7.0, device=device)
    with pytest.raises(IndexError, match=f"index {index} is out of bounds for dimension 0 with size 7"):
        x[indices.to(device)]
    pairs = torch.zeros(5000, dtype=torch.long, device=device)
    with pytest.raises(IndexError, match=f"index {index} is out of bounds for dimension 1 with size 7"):
        x.view(1, 7)[pairs, indices.to(device)]


@covers("index_put_")
def test_index_put_of_one_value_with_a_mask(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 6, 7, generator=generator)
    for index in ((x > 0,), (x[..., 0] > 0,), (x[:, 0, 0] > 0,), (slice(None), x[0] > 0), (..., x[0, 0] > 0)):
        there = tuple(i.to(device) if isinstance(i, torch.Tensor) else i for i in index)
        for value in (3.0, torch.tensor(4.0), torch.tensor([5.0])):
            expected, ours = x.clone(), x.to(device)
            expected[index] = value
            ours[there] = value.to(device) if isinstance(value, torch.Tensor) else value
            assert torch.equal(ours.cpu(), expected)
    ours = x.to(device)
    with pytest.raises(IndexError, match="does not match the shape of the indexed tensor"):
        ours[torch.ones(5, 5, dtype=torch.bool, device=device)] = 0.0
    with pytest.raises(RuntimeError, match="dtype"):
        ours.index_put_((ours > 0,), torch.zeros((), dtype=torch.int64, device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64], ids=str)
@covers("index_put_")
def test_a_mask_without_dimensions_selects_all_or_nothing(dtype: torch.dtype, device: torch.device) -> None:
    self = torch.arange(12).reshape(3, 4).to(dtype)
    for selects in (True, False):
        for mask in (torch.tensor(selects), torch.tensor(selects, device=device)):
            assigned = self.to(device).index_put((mask,), torch.tensor(5, dtype=dtype, device=device))
            assert torch.equal(assigned.cpu(), torch.full_like(self, 5) if selects else self)
            assert torch.equal(self.to(device)[mask].cpu(), self[mask.cpu()])
    # The CPU raises an internal assertion of ATen.
    with pytest.raises(RuntimeError, match=r"one value|INTERNAL ASSERT"):
        self.to(device).index_put((torch.tensor(True),), self[0].to(device), accumulate=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32], ids=str)
def test_values_among_others(dtype: torch.dtype, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 99, (3, 1111), generator=generator).to(dtype)
    if dtype.is_floating_point:
        values[0, ::7] = torch.nan
    for count in (0, 1, 5):
        others = values.view(-1)[:count]
        for invert in (False, True):
            ours = torch.isin(values.to(device), others.to(device), invert=invert)
            assert torch.equal(ours.cpu(), torch.isin(values, others, invert=invert))
    assert torch.equal(torch.isin(values.to(device), 3).cpu(), torch.isin(values, 3))


@pytest.mark.parametrize("step", [1, 3, 8, 11])
def test_gradients_of_sliding_windows(step: int, device: torch.device) -> None:
    x = torch.randn(4, 50, 3, generator=torch.Generator().manual_seed(0))
    for dim, size in ((1, 8), (2, 3), (0, 1)):
        grads = []
        for where in (torch.device("cpu"), device):
            input = x.to(where).requires_grad_()
            windows = input.unfold(dim, size, step)
            weights = torch.arange(windows.numel(), device=where).view(windows.shape).remainder(17) * 1.0
            grads.append(torch.autograd.grad((windows * weights).sum(), input)[0].cpu())
        torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors")
@pytest.mark.parametrize("mask_shape", [(3, 4), (4,), (3, 1), ()], ids=str)
def test_masked_fill_of_an_expanded_tensor(mask_shape: tuple[int, ...], device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(mask_shape, generator=generator) < 0.4
    for base in (torch.zeros(3, 1), torch.zeros(1, 4), torch.zeros(1, 1), torch.zeros(6)[::2].view(3, 1)):
        ours = base.clone().to(device).expand(3, 4).masked_fill_(mask.to(device), 2.0)
        assert torch.equal(ours.cpu(), base.clone().expand(3, 4).masked_fill_(mask, 2.0))


def test_masked_scatter_refuses_an_expanded_tensor(device: torch.device) -> None:
    for where in (torch.device("cpu"), device):
        expanded = torch.zeros(3, 1, device=where).expand(3, 4)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            expanded.masked_scatter_(torch.ones(3, 4, dtype=torch.bool, device=where), torch.ones(12, device=where))


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64], ids=str)
def test_index_reduce_refuses_dtypes_as_the_cpu_does(reduce: str, dtype: torch.dtype, device: torch.device) -> None:
    messages = set()
    for where in (torch.device("cpu"), device):
        x, index = torch.ones(4, dtype=dtype, device=where), torch.tensor([0, 1, 1], device=where)
        with pytest.raises(NotImplementedError) as raised:
            x.index_reduce_(0, index, torch.zeros(3, dtype=dtype, device=where), reduce)
        messages.add(str(raised.value))
    assert len(messages) == 1


# Row sizes in bytes: below a cache line, one line, one and a remainder, several.
@pytest.mark.parametrize("width", [1, 15, 16, 17, 33, 200])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128], ids=str)
def test_rows_of_any_width(width: int, dtype: torch.dtype, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randint(0, 99, (50, width + 1), generator=generator).to(dtype)
    picked = torch.randint(50, (600,), generator=generator)
    for rows in (table, table[:, 1:]):
        ours = rows.to(device) if rows is table else table.to(device)[:, 1:]
        assert torch.equal(ours.index_select(0, picked.to(device)).cpu(), rows.index_select(0, picked))
        assert torch.equal(ours[picked.to(device)].cpu(), rows[picked])


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
@covers("embedding_renorm_")
def test_rows_of_embeddings_are_scaled_down(norm_type: float, dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    weight = (torch.randn(9, 5) * torch.linspace(0.1, 2, 9).unsqueeze(1)).to(dtype)
    for indices in (
        torch.tensor([[1, 8, 1], [7, 4, 8]]),
        torch.tensor([-1, 3], dtype=torch.int32),
        torch.zeros(0).long(),
    ):
        expected = torch.embedding_renorm_(weight.clone(), indices, 1.5, norm_type)
        with NoFallback():
            scaled = torch.embedding_renorm_(weight.clone().to(device), indices.to(device), 1.5, norm_type)
        torch.testing.assert_close(scaled.cpu(), expected)
    with NoFallback():
        found = torch.nn.functional.embedding(indices.to(device), weight.to(device), max_norm=1.5)
    assert found.shape == (0, 5)


def test_rows_of_embeddings_that_do_not_exist_are_refused(device: torch.device) -> None:
    weight = torch.ones(3, 4)
    for given, indices in (
        (weight, torch.tensor([1, 3])),
        (weight, torch.tensor([-4])),
        (weight[0], torch.tensor([1])),
        (weight, torch.tensor([1.0])),
    ):
        with pytest.raises((IndexError, RuntimeError)) as expected:
            torch.embedding_renorm_(given.clone(), indices, 1.0, 2.0)
        with pytest.raises(type(expected.value)) as raised:
            torch.embedding_renorm_(given.to(device), indices.to(device), 1.0, 2.0)
        assert str(raised.value).replace("openclFloatType", "torch.FloatTensor") == str(expected.value)


@pytest.mark.parametrize("right", [False, True])
@covers("searchsorted.Scalar_out")
def test_searchsorted_of_a_scalar_with_out(right: bool, device: torch.device) -> None:
    boundaries = torch.tensor([1.0, 2, 2, 5])
    out = torch.empty(0, dtype=torch.int64, device=device)
    with NoFallback():
        torch.searchsorted(boundaries.to(device), 2, right=right, out=out)
    assert out.item() == torch.searchsorted(boundaries, 2, right=right).item()


ROWS, WIDTH = 50, 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.complex64], ids=str)
def test_short_rows_are_read_by_one_index_and_by_pairs(dtype: torch.dtype, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-9, 9, (7, 3, WIDTH), generator=generator).to(dtype)
    index = torch.randint(7, (10007,), generator=generator)
    middle = index % 3
    ours, picked = x.to(device), index.to(device)
    assert torch.equal(ours.index_select(0, picked).cpu(), x.index_select(0, index))
    assert torch.equal(ours[:, :, 1:4][picked].cpu(), x[:, :, 1:4][index])
    assert torch.equal(ours[picked, middle.to(device)].cpu(), x[index, middle])
    tokens = index[:9996].view(-1, 6, 2)
    assert torch.equal(torch.embedding(ours[:, 0], tokens.to(device)).cpu(), torch.embedding(x[:, 0], tokens))


@pytest.mark.parametrize("width", [None, WIDTH, 40], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("reduce", ["amax", "amin", "prod", "assign"])
def test_rows_reduce_into_one_row(reduce: str, dtype: torch.dtype, width: int | None, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (4 * ROWS,) if width is None else (4 * ROWS, width)
    source = torch.randint(1, 3, shape, generator=generator).to(dtype)
    if dtype.is_floating_point:
        source.view(-1)[::97] = torch.nan
    index = torch.randint(ROWS, shape[:1], generator=generator)
    if reduce == "assign":
        index, source = torch.randperm(ROWS, generator=generator), source[:ROWS]
        shape = source.shape
    rows = index if width is None else index[:, None].expand(shape)
    base = torch.full((ROWS, *shape[1:]), 2, dtype=dtype)

    def run(where: torch.device | str) -> torch.Tensor:
        out, indices, values = base.to(where), rows.to(where), source.to(where)
        if reduce == "assign":
            return out.index_copy(0, index.to(where), values)
        return out.scatter_reduce(0, indices, values, reduce)

    torch.testing.assert_close(run(device).cpu(), run("cpu"), rtol=0, atol=0, equal_nan=True)
