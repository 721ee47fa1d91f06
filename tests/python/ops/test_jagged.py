"""Conversions between jagged and padded tensors: as on the CPU, without a fallback."""

import pytest
import torch
from float64 import computed
from op_samples import NoFallback
from op_table import DTYPES, covers

LENGTHS = (3, 0, 5, 1)
to_padded = torch.ops.aten._jagged_to_padded_dense_forward
to_jagged = torch.ops.aten._padded_dense_to_jagged_forward


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def offsets(dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor([0, *LENGTHS]).cumsum(0).to(dtype)


@covers("_jagged_to_padded_dense_forward", "_padded_dense_to_jagged_forward")
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", computed(DTYPES["all"]), ids=str)
def test_jagged_tensors_are_padded_and_back(device: torch.device, dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    starts = offsets(index_dtype)
    for inner in ((), (2,), (2, 3)):
        values = torch.testing.make_tensor((sum(LENGTHS), *inner), dtype=dtype, device="cpu")
        for length in (5, 7, 2, 0):
            # The CPU has no kernel for some of the dtypes.
            expected = torch.full((4, length, *inner), 2).to(dtype)
            for item, count in enumerate(LENGTHS):
                kept = min(count, length)
                expected[item, :kept] = values[int(starts[item]) : int(starts[item]) + kept]
            with NoFallback():
                padded = to_padded(values.to(device), [starts.to(device)], [length], 2.0)
                assert torch.equal(padded.cpu(), expected)
                if length >= max(LENGTHS):
                    for total in (None, sum(LENGTHS)):
                        assert torch.equal(to_jagged(padded, [starts.to(device)], total).cpu(), values)


def test_nested_tensors_of_jagged_layout_are_padded_with_gradients(device: torch.device) -> None:
    parts = [torch.randn(length, 4) for length in (3, 1, 5)]
    weight = torch.randn(3, 5, 4)

    def run(where: torch.device | str) -> list[torch.Tensor]:
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged, device=where, requires_grad=True)
        padded = torch.nested.to_padded_tensor(nested, 0.0)
        (padded * weight.to(where)).sum().backward()
        return [padded.detach().cpu(), nested.grad.values().cpu()]

    with NoFallback():
        padded, gradient = run(device)
    assert torch.equal(padded, torch.nn.utils.rnn.pad_sequence(parts, batch_first=True))
    assert torch.equal(gradient, run("cpu")[1])


def test_jagged_tensors_refuse_arguments_as_the_cpu_does(device: torch.device) -> None:
    for where in ("cpu", device):
        values, starts = torch.ones(9, 2, device=where), offsets().to(where)
        for call in (
            lambda v=values, s=starts: to_padded(v, [s, s], [5, 5], 0.0),
            lambda s=starts: to_jagged(torch.ones(4, 5, 2, device=s.device), [s, s]),
            lambda s=starts: to_jagged(torch.ones(4, 2, 2, device=s.device), [s]),
            lambda s=starts: to_jagged(torch.ones(4, 5, 2, device=s.device), [s], 8),
        ):
            with pytest.raises(RuntimeError):
                call()
