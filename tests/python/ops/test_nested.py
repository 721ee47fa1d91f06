"""Nested tensors: values, gradients and errors as on the CPU."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from float64 import computed
from op_table import covers
from torch import nn

LENGTHS = (3, 1, 5)
WEIGHT = torch.linspace(-1, 1, 48).view(6, 8)
Function = Callable[[torch.Tensor, torch.device], torch.Tensor | list[torch.Tensor]]

FUNCTIONS: dict[str, Function] = {
    "linear": lambda x, there: F.linear(x, WEIGHT.to(there), WEIGHT[:, 0].to(there)),
    "layer_norm": lambda x, there: F.layer_norm(x, (8,), WEIGHT[0].to(there), WEIGHT[1].to(there)),
    "gelu": lambda x, _: F.gelu(x),
    "relu": lambda x, _: F.relu(x),
    "softmax": lambda x, _: x.softmax(-1),
    "add": lambda x, _: x + x,
    "mul": lambda x, _: x * x * 2,
    "matmul": lambda x, _: x @ x.transpose(1, 2),
    "bmm": lambda x, _: torch.bmm(x, x.transpose(1, 2)),
    "transpose": lambda x, _: x.transpose(1, 2).contiguous(),
    "reshape": lambda x, _: x.reshape(3, -1, 2, 4),
    "to_padded_tensor": lambda x, _: x.to_padded_tensor(0.5),
    "clone": lambda x, _: x.clone(),
    "select": lambda x, _: x.select(0, 1),
    "to": lambda x, _: x.to(torch.float16),
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Tensors on the CPU."""
    return [part.detach().cpu() for part in (tensor.unbind() if tensor.is_nested else [tensor])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_nested_tensors(name: str, device: torch.device) -> None:
    parts = [torch.randn(length, 8) for length in LENGTHS]

    def run(there: torch.device) -> list[torch.Tensor]:
        nested = torch.nested.nested_tensor(parts, device=there, requires_grad=True)
        result = FUNCTIONS[name](nested, there)
        sum(part.square().sum() for part in (result.unbind() if result.is_nested else [result])).backward()
        return [*parts_of(result), *parts_of(nested.grad)]

    torch.testing.assert_close(run(device), run(torch.device("cpu")), rtol=1e-4, atol=1e-5)


@covers("_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned")
def test_padded_tensors_become_nested(device: torch.device) -> None:
    padded = torch.randn(3, 5, 8)
    mask = torch.arange(5) < torch.tensor(LENGTHS).view(3, 1)
    nested = torch._nested_tensor_from_mask(padded.to(device), mask.to(device))
    assert [torch.equal(part, padded[row, : LENGTHS[row]]) for row, part in enumerate(parts_of(nested))] == [True] * 3
    assert torch._nested_tensor_from_mask_left_aligned(padded.to(device), mask.to(device))
    assert not torch._nested_tensor_from_mask_left_aligned(padded.to(device), mask.flip(1).to(device))
    sizes = torch.tensor([[length, 8] for length in LENGTHS])
    nested = torch._nested_from_padded(padded.to(device), sizes)
    expected = torch._nested_from_padded(padded, sizes)
    torch.testing.assert_close(parts_of(nested), parts_of(expected), rtol=0, atol=0)


def test_layer_norm_of_nested_tensors_checks_its_shape(device: torch.device) -> None:
    nested = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(1, 8)], device=device)
    with pytest.raises(RuntimeError, match="expected normalized_shape to end the nested tensor's sizes"):
        F.layer_norm(nested, (4,))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_outputs_0_at_padding(activation: str, norm_first: bool, device: torch.device) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, activation, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    encoder.use_nested_tensor = True  # with norm_first it is off by default
    there = copy.deepcopy(encoder).to(device)
    x, padding = torch.randn(3, 11, 32), torch.arange(11) >= torch.tensor([5, 11, 1]).view(3, 1)
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        actual = there(x.to(device), src_key_padding_mask=padding.to(device)).cpu()
    assert actual[padding].count_nonzero() == 0
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", computed([torch.float32, torch.float64]), ids=str)
@pytest.mark.parametrize("width", [8, 5])
def test_attention_of_jagged_tensors(width: int, dtype: torch.dtype, device: torch.device) -> None:
    lengths = ((3, 5, 1), (2, 7, 4), (2, 7, 4))
    values = [[torch.randn(length, 2, width, dtype=dtype) for length in row] for row in lengths]
    weight = torch.randn(9, 2, width, dtype=dtype)

    def run(there: torch.device) -> list[torch.Tensor]:
        make = torch.nested.nested_tensor
        first, second, third = (make(v, layout=torch.jagged, device=there, requires_grad=True) for v in values)
        third = torch.nested.nested_tensor_from_jagged(third.values(), second.offsets()).detach().requires_grad_()
        out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (first, second, third))).transpose(1, 2)
        (out.values() * weight.to(there)).sum().backward()
        return [t.detach().cpu() for t in (out.values(), *(t.grad.values() for t in (first, second, third)))]

    expected = run(torch.device("cpu"))
    torch.testing.assert_close(run(device), expected, rtol=1e-4, atol=1e-5)
