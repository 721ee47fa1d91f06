"""Optimizers: some steps on a small network give the CPU's parameters."""

import copy

import pytest
import torch
from torch import nn

OPTIMIZERS = {
    "sgd": lambda parameters, **how: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, **how),
    "adam": lambda parameters, **how: torch.optim.Adam(parameters, lr=0.01, weight_decay=0.1, **how),
    "amsgrad": lambda parameters, **how: torch.optim.Adam(parameters, lr=0.01, amsgrad=True, **how),
    "adamw": lambda parameters, **how: torch.optim.AdamW(parameters, lr=0.01, maximize=True, **how),
    "rmsprop": lambda parameters, **how: torch.optim.RMSprop(parameters, lr=0.01, centered=True, **how),
    "adagrad": lambda parameters, **how: torch.optim.Adagrad(parameters, lr=0.1, **how),
}


def train(module: nn.Module, x: torch.Tensor, make, steps: int = 5, clip: float | None = None, **how) -> nn.Module:
    """Take some steps towards the zero output."""
    optimizer = make(module.parameters(), **how)
    for _ in range(steps):
        optimizer.zero_grad()
        (module(x) ** 2).mean().backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip, foreach=how.get("foreach"))
        optimizer.step()
    return module


@pytest.fixture
def network() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)), torch.randn(16, 5)


def check(device: torch.device, network: tuple[nn.Module, torch.Tensor], make, **how) -> None:
    module, x = network
    there = train(copy.deepcopy(module).to(device), x.to(device), make, **how)
    here = train(module, x, make, **how)
    for ours, expected in zip(there.parameters(), here.parameters(), strict=True):
        assert ours.device == device
        torch.testing.assert_close(ours.detach().cpu(), expected.detach())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"foreach": False}], ids=["default", "foreach", "loop"])
def test_steps_give_the_parameters_of_the_cpu(device, network, name, how):
    check(device, network, OPTIMIZERS[name], **how)


@pytest.mark.parametrize("foreach", [True, False, None])
def test_clipping_of_gradients(device, network, foreach):
    check(device, network, OPTIMIZERS["sgd"], clip=0.01, foreach=foreach)


def test_clipping_reports_non_finite_gradients(device):
    parameter = torch.ones(3, device=device, requires_grad=True)
    (parameter * float("inf")).sum().backward()
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)
    nn.utils.clip_grad_value_([parameter], 2.0)
    assert parameter.grad.tolist() == [2, 2, 2]


def test_steps_stay_on_the_device(device, network, no_fallback):
    module, x = network
    train(module.to(device), x.to(device), OPTIMIZERS["adam"], steps=2)


FUSED = ("sgd", "adam", "amsgrad", "adamw", "adagrad")


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_fused_steps_give_the_parameters_of_unfused_ones(device, no_fallback, name, dtype):
    if dtype == torch.float64 and not torch.opencl.get_device_properties(device).fp64:
        pytest.skip("the device does not compute in float64")
    # More elements than a generic kernel takes, a transposed tensor, one with gaps, a 0-d tensor.
    shapes = [torch.randn(70_001), torch.randn(3, 5).t(), torch.randn(6, 4)[:, ::2], torch.randn(())]

    def parameters(where: torch.device, dtype: torch.dtype) -> list[torch.Tensor]:
        made = [torch.empty_strided(t.size(), t.stride(), dtype=dtype, device=where) for t in shapes]
        return [m.copy_(t).requires_grad_() for m, t in zip(made, shapes, strict=True)]

    # Kernels compute in float32 at least; the CPU's step in 16 bits rounds Adam's epsilon to 0, and divides by zero.
    ours = parameters(device, dtype)
    expected = parameters(torch.device("cpu"), torch.promote_types(dtype, torch.float32))
    fused, plain = OPTIMIZERS[name](ours, fused=True), OPTIMIZERS[name](expected, foreach=False)
    for _ in range(3):
        for a, b in zip(ours, expected, strict=True):
            a.grad = torch.randn(b.shape).to(device, dtype)
            b.grad = a.grad.to(b)
        fused.step()
        plain.step()
    # The initial values are rounded, and the values after each step: four times half an epsilon. Adam divides by
    # averages of squared gradients, and squares of small gradients have few bits in float16.
    rounding = 0.02 if dtype == torch.float16 else 2 * torch.finfo(dtype).eps
    loose = {} if dtype.itemsize > 2 else {"rtol": rounding, "atol": rounding}
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), check_dtype=False, **loose)


def test_the_first_states_of_adam_are_precise(device, no_fallback):
    """1 - beta2 of 0.999 in float32 has an error of 1.3e-5."""
    parameter = torch.zeros(100, device=device, requires_grad=True)
    gradient = torch.linspace(-3, 3, 100)
    parameter.grad = gradient.to(device)
    optimizer = torch.optim.Adam([parameter], fused=True)
    optimizer.step()
    for name, expected in (("exp_avg", 0.1 * gradient.double()), ("exp_avg_sq", 0.001 * gradient.double() ** 2)):
        ours = optimizer.state[parameter][name].cpu().double()
        torch.testing.assert_close(ours, expected, rtol=3e-7, atol=0)


@pytest.mark.parametrize("name", FUSED)
def test_fused_steps_of_many_parameters_of_two_dtypes(device, no_fallback, name):
    # Sizes around a group's share, and 0; more parameters than a launch takes.
    sizes = [0, 1, 1023, 1024, 1025, 5000, *range(1, 40)]
    dtypes = [torch.float32 if i % 20 else torch.bfloat16 for i in range(len(sizes))]
    ours = [torch.randn(n).to(device, dtype).requires_grad_() for n, dtype in zip(sizes, dtypes, strict=True)]
    expected = [x.detach().float().cpu().requires_grad_() for x in ours]
    fused, plain = OPTIMIZERS[name](ours, fused=True), OPTIMIZERS[name](expected, foreach=False)
    for _ in range(2):
        for a, b in zip(ours, expected, strict=True):
            a.grad = torch.randn(b.shape).to(device, a.dtype)
            b.grad = a.grad.float().cpu()
        fused.step()
        plain.step()
    for a, b in zip(ours, expected, strict=True):
        # After two steps: twice half an epsilon.
        rounding = torch.finfo(a.dtype).eps
        loose = {} if a.dtype == torch.float32 else {"rtol": rounding, "atol": rounding}
        torch.testing.assert_close(a.detach().cpu(), b.detach(), check_dtype=False, **loose)


# Memory layouts of a parameter or its gradient.
LAYOUTS = {
    "dense": lambda t: t.contiguous(),
    "transposed": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
    "every second": lambda t: t.new_zeros(*t.shape, 2).select(-1, 0).copy_(t),
    "parts of rows": lambda t: t.new_zeros(t.shape[0], t.shape[1] + 3)[:, : t.shape[1]].copy_(t),
}


@pytest.mark.parametrize("gradient", ["dense", "transposed", "every second"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUSED)
@pytest.mark.usefixtures("small_calls_on_host")
def test_fused_steps_leave_memory_around_a_parameter(device, name, layout, gradient):
    """The host could compute these, but its functions assume dense tensors with the strides of the parameter."""
    start, grads = torch.randn(6, 10), [torch.randn(6, 10) for _ in range(2)]
    ours = LAYOUTS[layout](start.to(device)).requires_grad_()
    expected = start.clone().requires_grad_()
    fused, plain = OPTIMIZERS[name]([ours], fused=True), OPTIMIZERS[name]([expected], foreach=False)
    whole = torch.empty(0, device=device).set_(ours.detach().untyped_storage())
    for grad in grads:
        ours.grad, expected.grad = LAYOUTS[gradient](grad.to(device)), grad
        torch.opencl.synchronize()
        fused.step()
        plain.step()
    torch.testing.assert_close(ours.detach().cpu(), expected.detach())
    ours.detach().zero_()
    assert whole.count_nonzero().item() == 0


@pytest.mark.parametrize("name", FUSED)
def test_fused_steps_take_few_launches(device, name):
    parameters = [torch.zeros(100, device=device, requires_grad=True) for _ in range(60)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = OPTIMIZERS[name](parameters, fused=True)
    optimizer.step()
    before = torch.opencl.launches()
    optimizer.step()
    # Step counts are updated by an operation on a separate list.
    assert torch.opencl.launches() - before <= 14


def test_fused_steps_refuse_lists_of_other_lengths(device):
    x = [torch.zeros(3, device=device)]
    with pytest.raises(RuntimeError, match="1 parameters, but 2 gradients"):
        torch._fused_sgd_(
            x,
            x * 2,
            [],
            weight_decay=0,
            momentum=0,
            lr=1,
            dampening=0,
            nesterov=False,
            maximize=False,
            is_first_step=True,
        )


def test_fused_steps_take_the_learning_rate_from_a_tensor(device, no_fallback):
    for where in ("cpu", device):
        rate = torch.tensor(0.25, device=where)
        x = torch.zeros(3, device=device, requires_grad=True)
        x.grad = torch.ones(3, device=device)
        torch.optim.Adam([x], lr=rate, fused=True).step()
        torch.testing.assert_close(x.detach().cpu(), torch.full((3,), -0.25))


def test_fused_steps_unscale_gradients_and_skip_infinite_ones(device):
    x = torch.zeros(3, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=1.0, fused=True)
    scaler = torch.amp.GradScaler("opencl", init_scale=8.0)
    scaler.scale((x * 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert x.tolist() == [-2, -2, -2] and x.grad.tolist() == [2, 2, 2]
    optimizer.zero_grad()
    scaler.scale((x * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert x.tolist() == [-2, -2, -2] and scaler.get_scale() == 4.0


def test_a_skipped_first_step_leaves_no_momentum(device):
    x = torch.ones(2000, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.1, momentum=0.9, fused=True)
    scaler = torch.amp.GradScaler("opencl", init_scale=8.0)
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((x * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(x.detach().cpu(), torch.full((2000,), 0.9))


def test_schedulers_and_closures(device, network):
    module, x = network
    module, x = module.to(device), x.to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (module(x) ** 2).mean()
        loss.backward()
        return loss

    losses = []
    for _ in range(3):
        losses.append(optimizer.step(closure).item())
        scheduler.step()
    assert losses[0] > losses[-1]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-3)
