"""Fused attention, without the matrix of weights, against PyTorch's composed attention in float64; its own features."""

from collections.abc import Callable

import pytest
import torch
from op_samples import NoFallback
from op_table import covers
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

CPU = torch.device("cpu")
# Absolute, for results of the order of 1, without the rounding of the inputs to the dtype.
TOLERANCES = {torch.float32: 5e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-12}

Options = dict[str, torch.Tensor | float | bool]

# Batch, query heads and key heads, queries, keys, head dims of keys and of values. There is a program for every rounded
# head dim: these need three.
SHAPES = {
    "tiny": (1, 1, 1, 1, 1, 1, 1),
    "odd": (2, 3, 3, 5, 9, 7, 3),
    "one query": (2, 4, 2, 1, 70, 16, 16),
    "few queries": (1, 2, 1, 2, 700, 50, 64),
    "wide": (1, 2, 1, 9, 11, 256, 200),
    "wide query": (1, 1, 1, 1, 150, 256, 200),
    "square": (1, 2, 2, 200, 200, 64, 64),
    "cross": (1, 4, 2, 131, 260, 50, 64),
    "long keys": (1, 1, 1, 65, 1100, 64, 17),
}


def mask_of(kind: str, shape: tuple[int, ...]) -> Options:
    """Make the options of a call; keys are hidden so that some queries see none."""
    batch, heads, _, queries, keys, *_ = shape
    match kind:
        case "none":
            return {}
        case "causal":
            return {"is_causal": True}
        case "scale":
            return {"scale": 0.05}
        case "float":
            return {"attn_mask": torch.randn(batch, 1, queries, keys)}
        case "padding":
            hidden = torch.arange(keys).expand(batch, 1, 1, keys) >= keys // 2 + torch.arange(batch).view(-1, 1, 1, 1)
            return {"attn_mask": ~hidden}
        case "blind":
            seen = torch.rand(heads, queries, keys) < 0.5
            seen[:, queries // 2] = False
            return {"attn_mask": seen}
    raise ValueError(kind)


def moved(options: Options, where: torch.device, dtype: torch.dtype) -> Options:
    """Move the mask of a call to a device and dtype."""
    return {
        name: value.to(where, dtype if value.is_floating_point() else value.dtype)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in options.items()
    }


def tensors(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Make query, key and value."""
    batch, heads, key_heads, queries, keys, width, value_width = shape
    sizes = [(batch, heads, queries, width), (batch, key_heads, keys, width), (batch, key_heads, keys, value_width)]
    return [torch.randn(size).to(dtype) for size in sizes]


def run(inputs: list[torch.Tensor], weights: torch.Tensor, options: Options) -> list[torch.Tensor]:
    """Return the result and the gradients of the inputs."""
    grouped = inputs[0].size(-3) != inputs[1].size(-3)
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    result = attention(*inputs, **options, enable_gqa=grouped)
    return [result, *torch.autograd.grad(result, inputs, weights)]


def assert_near(actual: list[torch.Tensor], exact: list[torch.Tensor], tolerance: float) -> None:
    """Compare with the float64 results."""
    for mine, wanted in zip(actual, exact, strict=True):
        largest = wanted.abs().max().item() if wanted.numel() else 0.0
        torch.testing.assert_close(mine.cpu().double(), wanted, rtol=0, atol=tolerance * max(1.0, largest))


@pytest.mark.parametrize("kind", ["none", "causal", "scale", "float", "padding", "blind"])
@pytest.mark.parametrize("name", SHAPES)
@covers(
    "_fused_sdp_choice",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_fused_attention_overrideable_backward",
)
def test_against_composed_attention(name: str, kind: str, device: torch.device, no_fallback: None) -> None:
    shape, inputs, options = SHAPES[name], tensors(SHAPES[name]), mask_of(kind, SHAPES[name])
    weights = torch.randn(shape[0], shape[1], shape[3], shape[6])
    choice = torch._fused_sdp_choice(
        *(tensor.to(device) for tensor in inputs),
        **moved(options, device, torch.float32),
        enable_gqa=shape[1] != shape[2],
    )
    assert choice == SDPBackend.OVERRIDEABLE.value
    exact = run([tensor.double() for tensor in inputs], weights.double(), moved(options, CPU, torch.float64))
    actual = run([tensor.to(device) for tensor in inputs], weights.to(device), moved(options, device, torch.float32))
    assert_near(actual, exact, TOLERANCES[torch.float32])


@pytest.mark.parametrize("shape", [SHAPES["odd"], SHAPES["cross"]], ids=["small", "large"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_dtypes(dtype: torch.dtype, shape: tuple[int, ...], device: torch.device, no_fallback: None) -> None:
    inputs, options = tensors(shape, dtype), mask_of("float", shape)
    options = moved(options, CPU, dtype)
    weights = torch.randn(shape[0], shape[1], shape[3], shape[6]).to(dtype)
    exact = run([tensor.double() for tensor in inputs], weights.double(), moved(options, CPU, torch.float64))
    actual = run([tensor.to(device) for tensor in inputs], weights.to(device), moved(options, device, dtype))
    assert all(tensor.dtype == dtype for tensor in actual)
    assert_near(actual, exact, TOLERANCES[dtype])


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "heads beside each other": lambda tensor: tensor.transpose(1, 2).contiguous().transpose(1, 2),
    "parts of one projection": lambda tensor: torch.cat([tensor, tensor], -1)[..., : tensor.size(-1)],
    "strided rows": lambda tensor: tensor.transpose(-1, -2).contiguous().transpose(-1, -2),
    "three dimensions": lambda tensor: tensor[0],
}


# The small one runs on the host if that is cheaper, with the CPU's own operator.
@pytest.mark.parametrize("shape", [(2, 4, 4, 20, 33, 24, 8), (2, 3, 3, 4, 5, 4, 4)], ids=["large", "small"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str, shape: tuple[int, ...], device: torch.device, no_fallback: None) -> None:
    inputs, weights = tensors(shape), torch.randn(shape[0], shape[1], shape[3], shape[6])
    layout = LAYOUTS[name]
    exact = run([layout(tensor.double()) for tensor in inputs], layout(weights.double()), {"is_causal": True})
    actual = run([layout(tensor.to(device)) for tensor in inputs], layout(weights.to(device)), {"is_causal": True})
    assert_near(actual, exact, 1e-5)


@pytest.mark.parametrize("size", [(2, 1, 12, 21), (12, 21), (2, 3, 1, 21)], ids=str)
def test_gradient_of_the_mask(size: tuple[int, ...], device: torch.device, no_fallback: None) -> None:
    inputs, mask, weights = tensors((2, 3, 3, 12, 21, 8, 8)), torch.randn(size), torch.randn(2, 3, 12, 8)

    def gradient(where: torch.device, dtype: torch.dtype) -> torch.Tensor:
        bias = mask.to(where, dtype).requires_grad_()
        result = attention(*(tensor.to(where, dtype) for tensor in inputs), attn_mask=bias)
        return torch.autograd.grad(result, bias, weights.to(where, dtype))[0]

    assert_near([gradient(device, torch.float32)], [gradient(CPU, torch.float64)], 1e-5)


@pytest.mark.parametrize(("queries", "keys"), [(7, 5), (70, 130)])
def test_dropout(queries: int, keys: int, device: torch.device, no_fallback: None) -> None:
    """With the unit matrix as values the result is the weights: they show what was dropped, to check the gradients."""
    shape, kept = (2, 3, 3, queries, keys, 16, keys), 0.7
    query, key, _ = (tensor.to(device) for tensor in tensors(shape))
    unit = torch.eye(keys, device=device).expand(2, 3, keys, keys)

    def drop(*inputs: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return attention(*inputs, dropout_p=1 - kept)

    weights = drop(query, key, unit).cpu()
    mask = weights != 0
    assert mask.float().mean().item() == pytest.approx(kept, abs=0.1 if queries < 10 else 0.01)
    value, slopes = torch.randn(2, 3, keys, 9), torch.randn(2, 3, queries, 9)

    exact_inputs = [tensor.cpu().double().requires_grad_() for tensor in (query, key, value)]
    plain = (exact_inputs[0] @ exact_inputs[1].mT / 4).softmax(-1)
    exact = plain * mask / kept @ exact_inputs[2]
    torch.testing.assert_close(weights.double(), (plain * mask / kept).detach(), rtol=1.3e-6, atol=1e-6)
    inputs = [tensor.to(device).requires_grad_() for tensor in (query, key, value)]
    result = drop(*inputs)
    assert_near(
        [result, *torch.autograd.grad(result, inputs, slopes.to(device))],
        [exact, *torch.autograd.grad(exact, exact_inputs, slopes.double())],
        1e-5,
    )


def test_everything_dropped(device: torch.device) -> None:
    inputs = [tensor.to(device) for tensor in tensors((1, 2, 2, 3, 4, 8, 8))]
    assert not attention(*inputs, dropout_p=1.0).any()


def test_gradients_do_not_vary(device: torch.device) -> None:
    inputs, weights = tensors((1, 1, 1, 150, 700, 16, 16)), torch.randn(1, 1, 150, 16).to(device)
    inputs = [tensor.to(device) for tensor in inputs]
    first = run(inputs, weights, {})
    for _ in range(3):
        assert all(torch.equal(*pair) for pair in zip(run(inputs, weights, {}), first, strict=True))


def test_no_matrix_of_weights_is_kept(device: torch.device) -> None:
    inputs = [tensor.to(device).requires_grad_() for tensor in tensors((1, 4, 4, 1024, 1024, 16, 16))]
    torch.opencl.synchronize()
    torch.opencl.reset_peak_memory_stats()
    before = torch.opencl.memory_allocated()
    attention(*inputs, is_causal=True).sum().backward()
    one_matrix = 1024 * 1024 * 4
    assert torch.opencl.max_memory_allocated() - before < one_matrix


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_large_scores(dtype: torch.dtype, device: torch.device) -> None:
    """Scores whose exponentials overflow in every dtype."""
    query, key, value = tensors((1, 1, 1, 40, 90, 8, 8))
    inputs = [tensor.to(dtype) for tensor in (query * 40, key * 40, value)]
    exact = attention(*(tensor.double() for tensor in inputs))
    assert_near([attention(*(tensor.to(device) for tensor in inputs))], [exact], TOLERANCES[dtype])


def test_nan_stays_in_its_row(device: torch.device) -> None:
    query, key, value = tensors((1, 1, 1, 20, 30, 8, 8))
    query[0, 0, 3, 5] = float("nan")
    result = attention(*(tensor.to(device) for tensor in (query, key, value))).cpu()
    assert result[0, 0, 3].isnan().all()
    assert result.isnan().sum() == 8


@pytest.mark.parametrize(("queries", "keys"), [(0, 4), (3, 0)])
def test_empty(queries: int, keys: int, device: torch.device, no_fallback: None) -> None:
    inputs = tensors((2, 2, 2, queries, keys, 8, 8))
    weights = torch.randn(2, 2, queries, 8)
    actual = run([tensor.to(device) for tensor in inputs], weights.to(device), {})
    assert_near(actual, [tensor.double() for tensor in run(inputs, weights, {})], 1e-6)


def test_sdpa_kernel_selects_the_backend(device: torch.device) -> None:
    inputs = [tensor.to(device) for tensor in tensors((1, 2, 2, 5, 5, 8, 8))]
    with sdpa_kernel(SDPBackend.MATH):
        assert torch._fused_sdp_choice(*inputs) == SDPBackend.MATH.value
        composed = attention(*inputs)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert torch._fused_sdp_choice(*inputs) == SDPBackend.OVERRIDEABLE.value
        torch.testing.assert_close(attention(*inputs), composed, rtol=1.3e-6, atol=1e-6)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), pytest.raises(RuntimeError, match="No viable backend"):
        attention(*inputs)


def test_arguments_without_a_kernel_use_composed_attention(device: torch.device) -> None:
    query, key, value = (tensor.to(device) for tensor in tensors((2, 2, 2, 5, 6, 8, 8)))
    cases = [(query, key[:1], value[:1]), (query[0, 0], key[0, 0], value[0, 0])]
    for inputs in cases:
        assert torch._fused_sdp_choice(*inputs) == SDPBackend.MATH.value
        with NoFallback():
            actual = attention(*inputs)
        expected = attention(*(tensor.cpu() for tensor in inputs))
        torch.testing.assert_close(actual.cpu(), expected, rtol=1.3e-6, atol=1e-6)


def test_transformed_attention_is_composed(device: torch.device) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 2, 2, 3, 4)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return attention(x, x, x).square().sum()

    for function in (loss, torch.func.grad(loss), torch.func.hessian(loss)):
        with sdpa_kernel(SDPBackend.MATH):
            expected = torch.stack([function(part) for part in x])
        torch.testing.assert_close(torch.func.vmap(function)(x.to(device)).cpu(), expected)


def test_an_undefined_gradient_of_the_output(device: torch.device) -> None:
    """A backward whose output gradient is undefined makes no gradients."""
    results = []
    for where in (CPU, device):
        query = torch.ones(1, 2, 4, 8, device=where, requires_grad=True)
        undefined = torch._C._functions.UndefinedGrad()
        undefined(attention(query, query, query)).sum().backward()
        results.append(query.grad)
    assert results == [None, None]


def test_second_derivatives_of_fused_attention_raise_and_those_of_its_composition_are_right(
    device: torch.device,
) -> None:
    def second(where: torch.device | str, backend: SDPBackend) -> torch.Tensor:
        x = torch.linspace(-1, 1, 64, device=where).reshape(1, 2, 4, 8).requires_grad_()
        with sdpa_kernel(backend):
            y = attention(x, x.sin(), x.cos())
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0].cpu()

    torch.testing.assert_close(second(device, SDPBackend.MATH), second("cpu", SDPBackend.MATH))
    for where in ("cpu", device):
        with pytest.raises(RuntimeError, match="not implemented"):
            second(where, SDPBackend.FLASH_ATTENTION if where == "cpu" else SDPBackend.OVERRIDEABLE)
