"""Counts of values: dtypes that CUDA supports and the CPU does not."""

import pytest
import torch


def counted(values, bins, low, high):
    """Count the integers in each bin; the last bin includes its upper bound."""
    places = [min((value - low) * bins // (high - low), bins - 1) for value in values if low <= value <= high]
    return [places.count(place) for place in range(bins)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(("bins", "low", "high"), [(4, 0, 3), (7, 1, 8), (100, 0, 0), (3, 0, 100)])
@pytest.mark.usefixtures("no_fallback")
def test_histograms_of_integers(device, dtype, bins, low, high):
    values = [0, 3, 3, 5, 100, 7, 1, 8]
    found = torch.histc(torch.tensor(values, dtype=dtype, device=device), bins, low, high)
    assert found.dtype == dtype
    assert found.tolist() == counted(values, bins, *((low, high) if low < high else (0, 100)))


def test_a_histogram_of_experts_with_out(device):
    chosen = torch.tensor([0, 2, 2, 7], dtype=torch.int32, device=device)
    out = torch.empty(8, dtype=torch.int32, device=device)
    torch.histc(chosen, bins=8, min=0, max=7, out=out)
    assert out.tolist() == [1, 0, 2, 0, 0, 0, 0, 1]
    assert torch.histc(chosen[:0], 2).tolist() == [0, 0]
    assert torch.histc(chosen[1:3], 2, 2, 2).tolist() == [0, 2]


def test_histograms_of_a_range_outside_the_dtype(device):
    x = torch.tensor([0.0, -3.3e38, 3.3e38], device=device)
    assert torch.histc(x, 4, min=3, max=3).sum().item() <= 3
    assert (x == x.clone()).all()
