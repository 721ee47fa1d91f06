"""Tensors with more elements than 32-bit indices reach."""

import os
from collections.abc import Iterator

import pytest
import torch

pytestmark = pytest.mark.slow
# More than signed and than unsigned 32-bit indices reach; not a multiple of any vector.
SIZES = [2**31 + 77, 2**32 + 77]
# For a tensor, a result of its size, and what PyTorch takes.
BYTES = 3 * max(SIZES)


@pytest.fixture(scope="module")
def large(device: torch.device) -> torch.device:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < BYTES or torch.opencl.get_device_properties(device).total_memory < BYTES:
        pytest.skip(f"needs {BYTES >> 30} GiB of free memory")
    return device


@pytest.fixture(params=SIZES)
def x(request: pytest.FixtureRequest, large: torch.device) -> Iterator[torch.Tensor]:
    """Zeros, but for the middle and the last element."""
    try:
        tensor = torch.zeros(request.param, dtype=torch.int8, device=large)
    except torch.OutOfMemoryError as error:
        pytest.skip(str(error))
    tensor[request.param // 2] = 3
    tensor[-1] = 5
    yield tensor
    del tensor
    torch.opencl.empty_cache()


def test_elements_are_found_at_their_places(x):
    n = x.numel()
    assert [x[n // 2].item(), x[-1].item(), x[n - 2].item()] == [3, 5, 0]
    assert x.sum(dtype=torch.int64).item() == 8
    assert x.max().item() == 5 and x.argmax().item() == n - 1
    assert x.nonzero().flatten().tolist() == [n // 2, n - 1]
    assert x[x > 0].tolist() == [3, 5]
    assert torch.count_nonzero(x).item() == 2


def test_element_wise_results_and_copies_reach_the_end(x):
    n = x.numel()
    y = x + 1
    assert [y[0].item(), y[n // 2].item(), y[-1].item()] == [1, 4, 6]
    assert y.sum(dtype=torch.int64).item() == n + 8
    del y
    y = x.flip(0)
    assert [y[0].item(), y[n - 1 - n // 2].item(), y[-1].item()] == [5, 3, 0]
    y.copy_(x)
    assert y[-3:].tolist() == [0, 0, 5] == x[-3:].cpu().tolist()


def test_rows_are_gathered_and_written_at_the_end(x):
    n = x.numel()
    positions = torch.tensor([n - 1, n // 2, 0], device=x.device)
    for found in (x.index_select(0, positions), x[positions], x.gather(0, positions)):
        assert found.tolist() == [5, 3, 0]
    x.scatter_(0, positions, torch.tensor([7, 8, 9], dtype=torch.int8, device=x.device))
    assert [x[n - 1].item(), x[n // 2].item(), x[0].item()] == [7, 8, 9]
    x.index_add_(0, positions, torch.ones(3, dtype=torch.int8, device=x.device))
    assert x[positions].tolist() == [8, 9, 10]
    x[positions] = 1
    assert x.sum(dtype=torch.int64).item() == 3


def test_matrices_are_reduced_and_transposed(x):
    rows = x[: x.numel() // 64 * 64].view(-1, 64)
    assert rows.shape[0] * 64 > 2**31
    rows[-1, 5] = 2
    assert rows.sum(1, dtype=torch.int8)[-1].item() == 2
    assert rows.sum(0, dtype=torch.int64).sum().item() == 5
    y = rows.t().contiguous()
    assert y[5, -1].item() == 2
