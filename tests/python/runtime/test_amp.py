"""Automatic mixed precision: torch.autocast("opencl") and torch.amp.GradScaler("opencl")."""

import pytest
import torch
from torch import nn

LOWER = [torch.float16, torch.bfloat16]


@pytest.fixture
def x(device) -> torch.Tensor:
    return torch.randn(4, 6, device=device)


@pytest.mark.parametrize("dtype", LOWER)
def test_matmuls_run_in_lower_precision_and_exponentials_in_float32(x, dtype):
    with torch.autocast("opencl", dtype=dtype):
        product = x @ x.t()
        assert product.dtype == dtype
        assert nn.functional.linear(x, x).dtype == dtype
        assert product.exp().dtype == torch.float32
        assert product.softmax(1).dtype == torch.float32
        assert product.sum().dtype == torch.float32
        assert (product + 1).dtype == dtype
        assert torch.addcmul(product, product, x @ x.t().float()).dtype == dtype
    assert (x @ x.t()).dtype == torch.float32
    rounded = x.to(dtype).double()
    torch.testing.assert_close(product.cpu(), (rounded @ rounded.t()).to(dtype).cpu())


def test_state_of_autocast(x):
    assert torch.get_autocast_dtype("opencl") in LOWER
    assert not torch.is_autocast_enabled("opencl")
    with torch.autocast("opencl"):
        assert torch.is_autocast_enabled("opencl")
        with torch.autocast("opencl", enabled=False):
            assert (x @ x.t()).dtype == torch.float32
    with torch.autocast("cpu"):
        assert (x @ x.t()).dtype == torch.float32
    assert torch.opencl.get_amp_supported_dtype() == LOWER


def test_dtypes_that_are_not_lower_are_refused():
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("opencl", dtype=torch.float64):
        assert not torch.is_autocast_enabled("opencl")


def test_the_unsafe_loss_is_refused(x):
    with torch.autocast("opencl"), pytest.raises(RuntimeError, match="with_logits"):
        nn.functional.binary_cross_entropy(x.sigmoid(), x.sigmoid())


@pytest.mark.parametrize("dtype", LOWER)
def test_training_step_is_close_to_float32(device, dtype):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
    x, target = torch.randn(16, 6, device=device), torch.randint(3, (16,), device=device)

    def gradients(enabled: bool) -> list[torch.Tensor]:
        plain.zero_grad()
        with torch.autocast("opencl", dtype=dtype, enabled=enabled):
            loss = nn.functional.cross_entropy(plain(x), target)
        assert loss.dtype == torch.float32
        loss.backward()
        return [parameter.grad.cpu() for parameter in plain.parameters()]

    # Inputs, weights and matmuls are rounded to the 8 mantissa bits of bfloat16 in two layers, forward and backward.
    torch.testing.assert_close(gradients(True), gradients(False), rtol=0.05, atol=0.02)


def test_custom_functions_may_autocast(x):
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="opencl", cast_inputs=torch.float32)
        def forward(ctx, value):
            return value @ value.t()

        @staticmethod
        @torch.amp.custom_bwd(device_type="opencl")
        def backward(ctx, grad):
            return None

    with torch.autocast("opencl"):
        assert Product.apply(x.half()).dtype == torch.float32


def scaled_step(device: torch.device, gradient: list[float], **options) -> tuple[torch.Tensor, torch.amp.GradScaler]:
    """One step of SGD with the given gradient; returns the parameter and the scaler."""
    scaler = torch.amp.GradScaler(device.type, init_scale=8.0, growth_interval=1, **options)
    parameter = torch.zeros(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler.scale((parameter * torch.tensor(gradient, device=device)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return parameter.detach().cpu(), scaler


def test_the_scaler_unscales_and_grows(device):
    parameter, scaler = scaled_step(device, [1.0, 2.0, -3.0])
    assert parameter.tolist() == [-1, -2, 3]
    assert scaler.get_scale() == 16


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_the_scaler_skips_a_step_with_an_overflow(device, bad):
    parameter, scaler = scaled_step(device, [1.0, bad, 0.0])
    assert parameter.tolist() == [0, 0, 0]
    assert scaler.get_scale() == 4


def test_the_scaler_agrees_with_the_cpus(device):
    for interval, found in ((1, 0.0), (2, 0.0), (1, 1.0)):
        states = []
        for where in ("cpu", device):
            scale = torch.full((), 2.0**127, device=where)
            tracker = torch.zeros((), dtype=torch.int32, device=where)
            torch._amp_update_scale_(scale, tracker, torch.tensor(found, device=where), 4.0, 0.5, interval)
            states.append((scale.item(), tracker.item()))
        assert states[0] == states[1]


def test_unscaling_several_gradients(device):
    grads = [torch.full((5,), 6.0, device=device), torch.full((2, 2), 4.0, device=device, dtype=torch.float16)]
    found, inverse = torch.zeros(1, device=device), torch.tensor([0.5], device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
    assert found.item() == 0
    assert grads[0].tolist() == [3] * 5 and grads[1].flatten().tolist() == [2] * 4
    grads[1][0, 0] = float("inf")
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
    assert found.item() == 1
    with pytest.raises(RuntimeError, match="one float"):
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.ones(2, device=device))


def test_the_classes_with_the_device_filled_in(x):
    with torch.opencl.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x.t()).dtype == torch.bfloat16
    with torch.opencl.amp.autocast(enabled=False):
        assert (x @ x.t()).dtype == torch.float32
    scaler = torch.opencl.amp.GradScaler(init_scale=4.0, growth_interval=1)
    parameter = nn.Parameter(torch.ones(2, device=x.device))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scaler.scale(parameter.sum()).backward()
    assert parameter.grad.tolist() == [4, 4]
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [0.5, 0.5]
    assert scaler.get_scale() == 8


def test_custom_functions_cast_their_inputs_and_run_backward_as_forward(device):
    seen = []

    class Square(torch.autograd.Function):
        @staticmethod
        @torch.opencl.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled("opencl")))
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.opencl.amp.custom_bwd
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            seen.append((x.dtype, torch.is_autocast_enabled("opencl")))
            return 2 * x * grad

    x = torch.ones(3, dtype=torch.float16, device=device, requires_grad=True)
    with torch.opencl.amp.autocast():
        y = Square.apply(x)
    y.sum().backward()
    assert y.dtype == torch.float32 and x.grad.eq(2).all()
    assert seen == [(torch.float32, False), (torch.float32, False)]
