"""Errors of index operations: exception types and messages are as on the CPU."""

import pytest
import torch
from torch.nn import functional as F

INDEX_OPS = {
    "index": lambda x, i: x[i],
    "index_put": lambda x, i: x.index_put((i,), x[:1]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x[:1]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:1]),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:1], "amax"),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x[:1]),
    "gather": lambda x, i: x.gather(0, i),
    "scatter": lambda x, i: x.scatter(0, i, 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x[:1]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, x[:1], "amax"),
    "embedding": lambda x, i: F.embedding(i, x.view(3, 1)),
    "embedding with padding": lambda x, i: F.embedding(i, x.view(3, 1), padding_idx=1),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "max_unpool2d": lambda x, i: F.max_unpool2d(x[:1].view(1, 1, 1, 1), i.view(1, 1, 1, 1), 1, 1),
}


def error_of(use, *args):
    with pytest.raises((IndexError, RuntimeError)) as raised:
        use(*args)
        torch.opencl.synchronize()
    return type(raised.value), str(raised.value)


@pytest.mark.parametrize("wrong", [3, -4, 2**33])
@pytest.mark.parametrize("name", INDEX_OPS)
def test_an_index_out_of_range_raises_the_cpus_error(device, name, wrong):
    found = [
        error_of(INDEX_OPS[name], torch.ones(3, device=where), torch.tensor([wrong], device=where))
        for where in ("cpu", device)
    ]
    assert found[0][0] is found[1][0], found
    if name not in ("one_hot", "max_unpool2d"):  # their errors come from the index operation they call
        assert found[1][1].startswith(found[0][1])


@pytest.mark.parametrize(
    "use",
    [
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.gather(0, i),
        lambda x, i: x.scatter(0, i, 9.0),
        lambda x, i: x.scatter_add(0, i, torch.ones((), device=x.device)),
        lambda x, i: x[i],
        lambda x, i: x.index_put((i,), torch.tensor(5.0)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_an_index_may_be_a_0d_cpu_tensor(device, use, dtype):
    x, index = torch.arange(3.0), torch.tensor(1, dtype=dtype)
    torch.testing.assert_close(use(x.to(device), index).cpu(), use(x, index))


@pytest.mark.parametrize("where", ["cpu", "device"])
@pytest.mark.parametrize("repeats", [(), (1,), (2,)])
def test_index_add_with_a_0d_index(device, where, repeats):
    x, index = torch.arange(3.0), torch.ones(repeats, dtype=torch.long)
    expected = x.index_put((index,), torch.tensor(5.0), accumulate=True)
    on_device = index.to(device) if where == "device" else index
    got = x.to(device).index_put((on_device,), torch.tensor(5.0, device=device), accumulate=True)
    torch.testing.assert_close(got.cpu(), expected)


def overlap(use, where):
    x = torch.tensor([1, 2, 3], device=where).view(3, 1)
    use(x)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: torch.nonzero(x, out=x),
        lambda x: torch.nonzero(x, out=torch.empty(0, device=x.device)),
        lambda x: torch.masked_select(x, x > 1, out=x.view(3)),
        lambda x: torch.masked_select(x, x),
        lambda x: x.masked_scatter(x > 0, x.float()),
        lambda x: x.masked_scatter(x > 0, x[:1]),
        lambda x: x.masked_scatter(x, x),
        lambda x: x.index_select(0, x),
        lambda x: x.index_select(0, x[:, 0].float()),
        lambda x: x[0, 0].index_select(0, torch.zeros(2, dtype=torch.long, device=x.device)),
    ],
)
def test_wrong_outputs_masks_and_indices(device, use):
    found = [error_of(use, torch.tensor([1, 2, 3], device=where).view(3, 1)) for where in ("cpu", device)]
    assert found[0][0] is found[1][0], found
    assert found[1][1].replace(" ", "").startswith(found[0][1].replace(" ", "")), found


def test_the_source_of_a_masked_scatter_may_be_its_target(device):
    x = torch.tensor([1.0, -2.0, 3.0, 4.0])
    expected = x.clone().masked_scatter_(x > 0, x)
    y = x.to(device)
    torch.testing.assert_close(y.masked_scatter_(y > 0, y).cpu(), expected)


@pytest.mark.parametrize("transposed", [False, True])
def test_an_output_that_overlaps_the_source(device, transposed):
    for where in ("cpu", device):
        c = torch.arange(9.0, device=where).view(3, 3)
        out = c.t() if transposed else c.view(-1)[1:5].view(2, 2)
        added = c if transposed else c.view(-1)[:4].view(2, 2)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            torch.addmm(added, torch.eye(len(added), device=where), torch.eye(len(added), device=where), out=out)


def test_index_put_without_indices(device):
    for where in ("cpu", device):
        with pytest.raises(RuntimeError, match="shape mismatch: value tensor"):
            torch.ones((), device=where).index_put([], torch.ones(1, device=where), accumulate=True)


@pytest.mark.parametrize("accumulate", [False, True])
def test_values_of_the_wrong_shape(accumulate, device):
    for where in ("cpu", device):
        rows = torch.tensor([0, 2], device=where)
        with pytest.raises(RuntimeError, match="shape mismatch: value tensor") as error:
            torch.ones(3, 4, device=where).index_put_((rows,), torch.ones(3, 4, device=where), accumulate)
        assert error.type is RuntimeError


def test_adding_many_values_to_an_empty_tensor(device):
    for where in ("cpu", device):
        nothing, index, values = (
            torch.empty(0, device=where),
            torch.zeros(70000, device=where).long(),
            torch.ones(70000),
        )
        with pytest.raises(RuntimeError, match="out of bounds"):
            nothing.scatter_add(0, index, values.to(where))
        with pytest.raises(IndexError, match="out of range"):
            nothing.index_add(0, index, values.to(where))


def test_an_index_is_checked_again_once_it_was_written_to(device):
    x, edges = torch.arange(8.0, device=device).view(4, 2), torch.zeros(2, 3, dtype=torch.long, device=device)
    uses = (
        lambda index: x.index_select(0, index),
        lambda index: torch.embedding(x, index),
        lambda index: torch.embedding(x, index.view(1, 3)),
        lambda index: x[index],
        lambda index: x.gather(0, index[:, None]),
        lambda index: x.index_add(0, index, torch.ones(3, 2, device=device)),
    )
    for use in uses:
        for index in (edges[1], edges[1].clone()):
            use(index), use(index)
            index[2] = 4
            with pytest.raises((IndexError, RuntimeError), match="4 is out of bounds"):
                use(index)
            index[2] = 0
            use(index)
    # Indices that were valid are checked again for a smaller tensor.
    edges.fill_(3)
    assert x[edges[0]].shape == (3, 2)
    with pytest.raises(IndexError, match="3 is out of bounds for dimension 0 with size 3"):
        x[:3][edges[0]]


def test_an_index_changed_after_its_check_raises_at_synchronisation(device):
    x, edges = torch.arange(4.0, device=device), torch.tensor([[0, 3, 1], [0, 0, 0]], device=device)
    index = edges[0]
    assert x.index_select(0, index).tolist() == [0, 3, 1]
    index.data[1] = 7
    found = x.index_select(0, index)
    with pytest.raises(IndexError, match="7 is out of bounds"):
        found.tolist()
    assert found.tolist()[::2] == [0, 1]
