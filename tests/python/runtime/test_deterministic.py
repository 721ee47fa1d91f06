"""torch.use_deterministic_algorithms: bitwise equal results in every run, and filled new memory."""

import pytest
import torch


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "use",
    [
        lambda out, index, values: out.index_add_(0, index, values),
        lambda out, index, values: out.scatter_add_(0, index, values),
        lambda out, index, values: out.index_put_((index,), values, accumulate=True),
        lambda out, index, values: out.put_(index, values, accumulate=True),
        lambda out, index, values: out.scatter_reduce_(0, index, values, "prod"),
        lambda out, index, values: out.index_put_((index,), values),
    ],
    ids=["index_add_", "scatter_add_", "index_put_", "put_", "scatter_reduce_", "assign"],
)
def test_sums_of_floats_are_the_same_in_every_run(use, device):
    torch.manual_seed(0)
    index, values = torch.randint(0, 3, (100_000,), device=device), torch.rand(100_000, device=device) + 0.5
    results = {tuple(use(torch.ones(3, device=device), index, values).tolist()) for _ in range(8)}
    assert len(results) == 1


def test_sums_in_order_are_those_of_the_cpu(device):
    torch.manual_seed(0)
    index, values = torch.randint(0, 3, (100_000,)), torch.rand(100_000)
    expected = torch.zeros(3).index_add_(0, index, values)
    assert torch.equal(torch.zeros(3, device=device).index_add_(0, index.to(device), values.to(device)).cpu(), expected)


def test_gradients_of_grids_are_the_same_in_every_run(device):
    torch.manual_seed(0)
    values, places = torch.zeros(1, 3, 2, 2, device=device), torch.rand(1, 100, 100, 2, device=device) - 0.5
    weights = torch.rand(1, 3, 100, 100, device=device)

    def gradient() -> tuple[float, ...]:
        x = values.clone().requires_grad_()
        torch.nn.functional.grid_sample(x, places, align_corners=False).backward(weights)
        return tuple(x.grad.flatten().tolist())

    assert len({gradient() for _ in range(8)}) == 1


def test_new_memory_is_filled(device):
    assert torch.empty(3, device=device).isnan().all()
    assert torch.empty_strided((2, 2), (1, 2), device=device, dtype=torch.float16).isnan().all()
    assert torch.empty(2, dtype=torch.int8, device=device).tolist() == [127, 127]
    grown = torch.ones(2, device=device).resize_(5)
    assert grown[:2].tolist() == [1, 1] and grown[2:].isnan().all()
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        assert torch.empty(2, device=device).shape == (2,)
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.mark.parametrize("spatial", [2, 3])
def test_unpooling_says_that_its_result_depends_on_the_order_of_writes(spatial, device):
    unpool = getattr(torch.nn.functional, f"max_unpool{spatial}d")
    image, indices = torch.ones(1, 1, *[2] * spatial), torch.zeros(1, 1, *[2] * spatial, dtype=torch.int64)
    for where in ("cpu", device):
        with pytest.raises(RuntimeError, match=f"max_unpooling{spatial}d_forward_out does not have a deterministic"):
            unpool(image.to(where), indices.to(where), 2)
