"""Recurrent layers against the CPU: PyTorch makes them of fused cells on this device."""

import copy

import pytest
import torch
from op_samples import NoFallback, assert_same
from op_table import covers
from torch import nn

TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-9, torch.float16: 1e-2, torch.bfloat16: 6e-2}
LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def run(layer: nn.Module, inputs: torch.Tensor, **more: object) -> list[torch.Tensor]:
    """Outputs, last states, and the gradients of input and weights."""
    inputs = inputs.detach().requires_grad_()
    output, states = layer(inputs, **more)
    states = list(states) if isinstance(states, tuple) else [states]
    weights = torch.linspace(-1, 1, output.numel()).view(output.shape)
    loss = (output * weights.to(output)).sum()
    loss = loss + sum((state * state).sum() for state in states)
    return [output, *states, *torch.autograd.grad(loss, [inputs, *layer.parameters()])]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
@covers(
    "_thnn_fused_lstm_cell",
    "_thnn_fused_lstm_cell_backward_impl",
    "_thnn_fused_gru_cell",
    "_thnn_fused_gru_cell_backward",
)
def test_layers(kind: str, bias: bool, dtype: torch.dtype, device: torch.device) -> None:
    layer = LAYERS[kind](5, 20, num_layers=2, bidirectional=True, bias=bias, dtype=dtype)
    inputs = torch.randn(4, 3, 5, dtype=dtype)
    exact = run(copy.deepcopy(layer).double(), inputs.double())
    with NoFallback():
        actual = run(layer.to(device), inputs.to(device))
    for mine, theirs in zip(actual, exact, strict=True):
        assert mine.dtype == dtype
        limit = TOLERANCES[dtype] * max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(mine.cpu().double(), theirs, rtol=0, atol=limit)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_cells_with_strides_and_without_one_gradient(kind: str, device: torch.device) -> None:
    cell = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}[kind](5, 7)
    inputs = torch.randn(5, 6).t()
    state = torch.randn(6, 14)[:, ::2]

    def gradients(where: torch.device) -> list[torch.Tensor]:
        here = copy.deepcopy(cell).to(where)
        start = state.to(where)
        result = here(inputs.to(where), (start, start) if kind == "lstm" else start)
        # Only the cell state of the LSTM is used: the hidden state has no gradient.
        last = result[1] if kind == "lstm" else result
        return [last, *torch.autograd.grad(last.square().sum(), list(here.parameters()), allow_unused=True)]

    with NoFallback():
        assert_same(gradients(device), gradients(torch.device("cpu")), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_sequences_of_different_lengths(kind: str, device: torch.device) -> None:
    layer = LAYERS[kind](3, 4)
    inputs, lengths = torch.randn(5, 3, 3), torch.tensor([5, 3, 1])

    def result(where: torch.device) -> list[torch.Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(inputs.to(where), lengths)
        output, states = copy.deepcopy(layer).to(where)(packed)
        return [nn.utils.rnn.pad_packed_sequence(output)[0], states]

    with NoFallback():
        assert_same(result(device), result(torch.device("cpu")), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_second_derivatives(kind: str, device: torch.device) -> None:
    layer = LAYERS[kind](3, 4)
    inputs = torch.randn(2, 2, 3)

    def second(where: torch.device) -> torch.Tensor:
        here, x = copy.deepcopy(layer).to(where), inputs.to(where).requires_grad_()
        (first,) = torch.autograd.grad(here(x)[0].sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    assert_same(second(device), second(torch.device("cpu")), rtol=1e-4, atol=1e-5)


def test_gates_that_do_not_fit_are_refused(device: torch.device) -> None:
    gates, state = torch.ones(2, 12, device=device), torch.ones(2, 4, device=device)
    with pytest.raises(RuntimeError, match="do not fit"):
        torch.ops.aten._thnn_fused_lstm_cell(gates, gates, state)
    with pytest.raises(RuntimeError, match="dtype"):
        torch.ops.aten._thnn_fused_gru_cell(gates, gates, state.half())
