"""Recurrent layers and cells, and other functions that PyTorch builds on per-device operators, against the CPU."""

import copy
import functools

import pytest
import torch
from float64 import computed
from op_samples import DEFAULT_TOLERANCES, NoFallback
from op_table import FLOATING, covers
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

INPUT, HIDDEN, STEPS, BATCH = 5, 19, 4, 3
LAYERS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": functools.partial(nn.RNN, nonlinearity="relu"),
}
KINDS = {
    "plain": {},
    "no bias": {"bias": False},
    "both ways": {"bidirectional": True},
    "deep": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True},
}


def tensors(results) -> list[torch.Tensor]:
    """The tensors of nested tuples, in order."""
    if isinstance(results, torch.Tensor):
        return [results]
    return [tensor for part in results for tensor in tensors(part)]


def trained(module: nn.Module, use, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Run forward and backward.

    Returns:
        The results, and the gradients of inputs and parameters.
    """
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    results = tensors(use(module, *inputs))
    sum((result.square() * (i + 1)).sum() for i, result in enumerate(results)).backward()
    return [*results, *(tensor.grad for tensor in inputs), *(parameter.grad for parameter in module.parameters())]


def compare(module: nn.Module, use, device: torch.device, *inputs: torch.Tensor) -> None:
    """Compare the device's results and gradients with the CPU's.

    16-bit results may be as far from float32 results as the CPU's own, which are rounded in every step.
    """
    there = copy.deepcopy(module).to(device)
    expected = trained(copy.deepcopy(module), use, *inputs)
    dtype = inputs[0].dtype
    relative = {torch.float16: 5e-3, torch.bfloat16: 5e-2}.get(dtype, DEFAULT_TOLERANCES[dtype][0])
    absolute = DEFAULT_TOLERANCES[dtype][1]
    if dtype in (torch.float16, torch.bfloat16):
        rounded, expected = expected, trained(module.float(), use, *(tensor.float() for tensor in inputs))
        own = max((a - b).abs().max().item() for a, b in zip(rounded, expected, strict=True))
        absolute = max(own, relative)
    with NoFallback():
        actual = trained(there, use, *(tensor.to(device) for tensor in inputs))
    for got, wanted in zip(actual, expected, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.cpu().to(wanted.dtype), wanted, rtol=relative, atol=absolute)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers(layer, kind, device):
    torch.manual_seed(0)
    compare(layer(INPUT, HIDDEN, **KINDS[kind]), lambda m, x: m(x), device, torch.randn(STEPS, BATCH, INPUT))


@pytest.mark.parametrize("kind", KINDS)
def test_lstm_layers_by_kernels(kind, device):
    """Without the CPU's library, which computes float32 layers on CPU devices."""
    torch.manual_seed(0)
    with torch.backends.mkldnn.flags(enabled=False):
        compare(nn.LSTM(INPUT, HIDDEN, **KINDS[kind]), lambda m, x: m(x), device, torch.randn(STEPS, BATCH, INPUT))


def test_a_captured_lstm(device):
    torch.manual_seed(0)
    module, x = nn.LSTM(INPUT, HIDDEN), torch.randn(2, STEPS, BATCH, INPUT)
    expected = module(x[1])[0].detach()
    there, given = module.to(device), x[0].to(device)
    with torch.no_grad():
        there(given)
        graph = torch.opencl.OpenCLGraph()
        with torch.opencl.graph(graph):
            output = there(given)[0]
        given.copy_(x[1])
        graph.replay()
    torch.testing.assert_close(output.cpu(), expected)


def test_a_captured_gradient_of_an_lstm(device):
    """Capture the gradient of an earlier forward pass, which may have run on the host."""
    torch.manual_seed(0)
    module, x = nn.LSTM(INPUT, HIDDEN), torch.randn(STEPS, BATCH, INPUT, requires_grad=True)
    (expected,) = torch.autograd.grad(module(x)[0].square().sum(), x)
    there, given = module.to(device), x.detach().to(device).requires_grad_()
    loss = there(given)[0].square().sum()
    torch.autograd.grad(loss, given, retain_graph=True)
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph):
        (gradient,) = torch.autograd.grad(loss, given, retain_graph=True)
    graph.replay()
    torch.testing.assert_close(gradient.cpu(), expected)


def test_projections(device):
    torch.manual_seed(0)
    compare(nn.LSTM(INPUT, HIDDEN, proj_size=3), lambda m, x: m(x), device, torch.randn(STEPS, BATCH, INPUT))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences(layer, device):
    def use(module, x):
        packed = pack_padded_sequence(x, torch.tensor([2, STEPS, 1]), enforce_sorted=False)
        results, state = module(packed)
        return pad_packed_sequence(results)[0], state

    torch.manual_seed(0)
    compare(layer(INPUT, HIDDEN, num_layers=2, bidirectional=True), use, device, torch.randn(STEPS, BATCH, INPUT))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(cell, bias, dtype, device):
    torch.manual_seed(0)
    module = cell(INPUT, HIDDEN, bias=bias).to(dtype)
    compare(module, lambda m, x: m(x), device, torch.randn(BATCH, INPUT, dtype=dtype))


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_cells_as_large_as_a_specialised_kernel(cell, device):
    torch.manual_seed(0)
    compare(cell(8, 300), lambda m, x: m(x), device, torch.randn(256, 8))


def test_only_the_cell_state_has_a_gradient(device):
    torch.manual_seed(0)
    compare(nn.LSTMCell(INPUT, HIDDEN), lambda m, x: m(x)[1], device, torch.randn(BATCH, INPUT))


def test_an_empty_batch(device):
    for layer in (nn.LSTM, nn.GRU):
        results, _ = layer(INPUT, HIDDEN).to(device)(torch.randn(STEPS, 0, INPUT, device=device))
        assert results.shape == (STEPS, 0, HIDDEN)


def penalty(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A gradient with its own graph."""
    return torch.autograd.grad(sum(t.square().sum() for t in tensors(module(x))), x, create_graph=True)[0]


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_second_derivatives(cell, device):
    torch.manual_seed(0)
    compare(cell(INPUT, HIDDEN).double(), penalty, device, torch.randn(BATCH, INPUT, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_second_derivatives_of_layers(layer, dtype, device):
    torch.manual_seed(0)
    module = LAYERS[layer](INPUT, HIDDEN, bidirectional=True).to(dtype)
    compare(module, penalty, device, torch.randn(STEPS, BATCH, INPUT, dtype=dtype))


def twice(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A second call starts from the final state of the first, which depends on the same weights and input."""
    _, state = module(x)
    return module(x.sin(), state)[0]


def from_the_input(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The state is a mean of the input."""
    state = x.mean(0, keepdim=True)
    return module(x, (state, state.sin()) if isinstance(module, nn.LSTM) else state)[0]


@pytest.mark.parametrize("use", [twice, from_the_input])
@pytest.mark.parametrize("layer", LAYERS)
def test_second_derivatives_with_dependent_inputs(layer, use, device):
    def penalties(module, x):
        wanted = [x, *module.parameters()]
        return torch.autograd.grad(use(module, x).square().sum(), wanted, create_graph=True)

    torch.manual_seed(0)
    compare(LAYERS[layer](INPUT, INPUT).double(), penalties, device, torch.randn(STEPS, BATCH, INPUT).double())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layer", LAYERS)
def test_dtypes_of_layers(layer, dtype, device):
    torch.manual_seed(0)
    module = LAYERS[layer](INPUT, HIDDEN, num_layers=2).to(dtype)
    compare(module, lambda m, x: m(x), device, torch.randn(STEPS, BATCH, INPUT, dtype=dtype))


@pytest.mark.parametrize("wanted", ["output", "last state", "last step"])
@pytest.mark.parametrize("layer", LAYERS)
def test_some_results_have_a_gradient(layer, wanted, device):
    def use(module, x, state):
        # The cell state of an LSTM has the same initial values as its hidden state.
        output, last = module(x, (state, state) if layer == "lstm" else state)
        return {"output": output, "last state": tensors(last)[-1], "last step": output[-1]}[wanted]

    torch.manual_seed(0)
    module, state = LAYERS[layer](INPUT, HIDDEN, bidirectional=True), torch.randn(2, BATCH, HIDDEN)
    compare(module, use, device, torch.randn(STEPS, BATCH, INPUT), state)


@pytest.mark.parametrize("layer", LAYERS)
def test_one_step_of_a_batch_of_one(layer, device):
    torch.manual_seed(0)
    compare(LAYERS[layer](INPUT, HIDDEN), lambda m, x: m(x), device, torch.randn(1, 1, INPUT))
    compare(LAYERS[layer](INPUT, HIDDEN), lambda m, x: m(x), device, torch.randn(STEPS, INPUT))


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_without_autograd(layer, device):
    torch.manual_seed(0)
    module, x = LAYERS[layer](INPUT, HIDDEN), torch.randn(STEPS, BATCH, INPUT)
    expected = module(x)[0].detach()
    there = module.to(device)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode(), NoFallback():
            results, _ = there(x.to(device))
        torch.testing.assert_close(results.cpu(), expected)


@pytest.mark.parametrize("layer", LAYERS)
def test_frozen_weights_and_a_second_backward_pass(layer, device):
    torch.manual_seed(0)
    module, x = LAYERS[layer](INPUT, HIDDEN).requires_grad_(False), torch.randn(STEPS, BATCH, INPUT)
    for parameter in (module.weight_hh_l0, module.bias_hh_l0):
        parameter.requires_grad_()

    def gradients(module, x):
        x = x.clone().requires_grad_()
        loss = module(x)[0].square().sum()
        wanted = [x, module.weight_hh_l0, module.bias_hh_l0]
        first = torch.autograd.grad(loss, wanted, retain_graph=True)
        second = torch.autograd.grad(loss, wanted)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        return second

    expected = gradients(module, x)
    for got, wanted in zip(gradients(module.to(device), x.to(device)), expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted)


def test_a_gru_without_autograd_keeps_no_gates(device):
    def peak(module, x):
        torch.opencl.reset_peak_memory_stats()
        before = torch.opencl.memory_allocated()
        module(x)
        return (torch.opencl.max_memory_allocated() - before) / (x.shape[0] * x.shape[1] * 64 * x.element_size())

    module, x = nn.GRU(INPUT, 64).to(device), torch.zeros(128, 16, INPUT, device=device)
    # In units of the output: three gates of the input's matmul, the output itself, and five values for the backward
    # pass.
    assert peak(module, x) > 9
    assert peak(module.requires_grad_(False), x) < 5


@pytest.mark.parametrize("kind", ["plain", "batch first"])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_output_may_be_changed_in_place(layer, kind, device):
    module = LAYERS[layer](INPUT, HIDDEN, **KINDS[kind]).double()
    compare(module, lambda m, x: m(x)[0].mul_(2), device, torch.randn(STEPS, BATCH, INPUT).double())


@pytest.mark.parametrize("layer", LAYERS)
def test_transforms_of_layers(layer, device):
    torch.manual_seed(0)
    module, x = LAYERS[layer](INPUT, HIDDEN), torch.randn(STEPS, BATCH, INPUT)
    there = copy.deepcopy(module).to(device)
    for transform in (
        lambda m, x: torch.func.grad(lambda t: m(t)[0].square().sum())(x),
        lambda m, x: torch.autograd.functional.jacobian(lambda t: m(t)[0], x, vectorize=True),
    ):
        torch.testing.assert_close(transform(there, x.to(device)).cpu(), transform(module, x))


@pytest.mark.parametrize("layer", LAYERS)
def test_all_steps_share_one_input_matmul(layer, device):
    def launches(steps):
        before = torch.opencl.launches()
        LAYERS[layer](INPUT, HIDDEN).to(device)(torch.randn(steps, BATCH, INPUT, device=device))[0].sum().backward()
        return torch.opencl.launches() - before

    launches(4)
    # Per step, forward and backward: a matmul of the state and a cell; a GRU's state has a second gradient path.
    assert launches(24) - launches(4) <= 20 * 6


def test_sizes_of_layers_that_do_not_fit_are_refused(device):
    module, x = nn.LSTM(INPUT, HIDDEN).to(device), torch.zeros(STEPS, BATCH, INPUT, device=device)
    state = torch.zeros(1, BATCH, HIDDEN, device=device)
    with pytest.raises(RuntimeError, match="two hidden states"):
        torch.lstm(x, [state], module._flat_weights, True, 1, 0.0, True, False, False)
    with pytest.raises(RuntimeError):
        torch.lstm(x[..., 1:], [state, state], module._flat_weights, True, 1, 0.0, True, False, False)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_autocast(layer, device):
    torch.manual_seed(0)
    module, x = layer(INPUT, HIDDEN), torch.randn(STEPS, BATCH, INPUT)
    there = copy.deepcopy(module).to(device)
    with torch.autocast("opencl", dtype=torch.bfloat16):
        results, _ = there(x.to(device))
    assert results.dtype == torch.bfloat16
    # Every step rounds its state to the 8 mantissa bits of bfloat16.
    torch.testing.assert_close(results.float().cpu(), module(x)[0], rtol=1.6e-2, atol=1.6e-2)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_backward_pass_under_autocast(layer, create_graph, device):
    torch.manual_seed(0)
    module, x = LAYERS[layer](INPUT, HIDDEN).to(device), torch.randn(STEPS, BATCH, INPUT, device=device)
    results = module(x.requires_grad_())[0]

    def gradients():
        wanted = [x, *module.parameters()]
        return torch.autograd.grad(results, wanted, torch.ones_like(results), True, create_graph)

    expected = gradients()
    with torch.autocast("opencl", dtype=torch.bfloat16):
        actual = gradients()
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("layer", LAYERS)
def test_each_gradient_has_separate_memory(layer, device):
    module, x = LAYERS[layer](INPUT, HIDDEN).to(device), torch.randn(STEPS, BATCH, INPUT, device=device)
    gradients = torch.autograd.grad(module(x)[0].sum(), list(module.parameters()))
    assert len({gradient.data_ptr() for gradient in gradients}) == len(gradients)


def test_gates_of_a_wrong_size_are_refused(device):
    gates, state = torch.zeros(2, 12, device=device), torch.zeros(2, 4, device=device)
    with pytest.raises(RuntimeError, match="expected input_gates to have shape"):
        torch.ops.aten._thnn_fused_lstm_cell(gates, gates, state)
    with pytest.raises(RuntimeError, match="expected workspace to have shape"):
        torch.ops.aten._thnn_fused_gru_cell_backward(state, gates, True)
    with pytest.raises(RuntimeError, match="expected input_bias to have dtype"):
        torch.ops.aten._thnn_fused_gru_cell(gates, gates, state, *[torch.zeros(12, device=device).half()] * 2)


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@covers("_masked_softmax_backward", "glu_backward_jvp")
def test_gradients_that_are_separate_operators(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    rtol, atol = DEFAULT_TOLERANCES[dtype]
    mask = torch.rand(4, 6) < 0.3
    output = torch.randn(4, 6).masked_fill(mask, -float("inf")).softmax(-1).to(dtype)
    grad = torch.randn(4, 6).to(dtype)
    for dim in (None, 0):
        exact = torch.ops.aten._masked_softmax_backward(grad.double(), output.double(), mask, dim).to(dtype)
        with NoFallback():
            result = torch.ops.aten._masked_softmax_backward(grad.to(device), output.to(device), mask.to(device), dim)
        torch.testing.assert_close(result.cpu(), exact, rtol=rtol, atol=max(atol, torch.finfo(dtype).eps))
    with pytest.raises(RuntimeError, match="Mask should be a boolean tensor"):
        torch.ops.aten._masked_softmax_backward(grad.to(device), output.to(device), mask.to(device, dtype), 1)

    x, dx = torch.randn(2, 4, 6).to(dtype)
    grad_glu, dgrad_glu = torch.randn(2, 4, 3).to(dtype)
    grad_x = torch.ops.aten.glu_backward(grad_glu, x, 1)
    inputs = (grad_x, grad_glu, x, dgrad_glu, dx)
    exact = torch.ops.aten.glu_backward_jvp(*(t.double() for t in inputs), 1)
    with NoFallback():
        result = torch.ops.aten.glu_backward_jvp(*(t.to(device) for t in inputs), 1)
    torch.testing.assert_close(result.cpu().double(), exact, rtol=8 * rtol, atol=8 * torch.finfo(dtype).eps)
