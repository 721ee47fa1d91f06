"""Fake quantisation in quantisation-aware training: as on the CPU, without fallbacks, with gradients."""

import pytest
import torch
from float64 import computed
from op_samples import NoFallback
from op_table import FLOATING, covers
from torch import nn
from torch.ao import quantization

SPECIAL = [float("nan"), float("inf"), -float("inf"), 0.25, 0.35, -300.0, 1e30, -0.0]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def compare(work, *tensors: torch.Tensor, device: torch.device) -> None:
    """Compare results and gradients of the floating-point tensors, which come first, with the CPU's."""

    def run(where: torch.device | str) -> list[torch.Tensor]:
        inputs = [tensor.to(where, copy=True) for tensor in tensors]
        leaves = [tensor.requires_grad_() for tensor in inputs if tensor.is_floating_point()]
        results = work(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        weight = torch.linspace(-1, 1, results[0].numel()).reshape(results[0].shape).to(results[0])
        gradients = torch.autograd.grad(results[0], leaves, weight, allow_unused=True)
        return [tensor.detach().cpu() for tensor in (*results, *gradients) if tensor is not None]

    with NoFallback():
        ours = run(device)
    for mine, theirs in zip(ours, run("cpu"), strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)


@covers("fake_quantize_per_tensor_affine_cachemask", "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@pytest.mark.parametrize("shape", [(), (7,), (5, 800), (2, 3, 4)])
def test_one_scale_for_a_tensor(device: torch.device, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=dtype)
    scale, zero_point, on = torch.tensor(0.1), torch.tensor(2, dtype=torch.int32), torch.tensor([1])
    cachemask = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    for zero, low, high in ((2, -8, 7), (0, 0, 255), (-128, -128, 127)):
        compare(
            lambda x, zero=zero, low=low, high=high: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(
                x, 0.1, zero, low, high
            ),
            x,
            device=device,
        )
        compare(
            lambda x, zero=zero, low=low, high=high: torch.fake_quantize_per_tensor_affine(x, 0.3, zero, low, high),
            x,
            device=device,
        )
    for enabled in (on, on * 0):
        compare(
            lambda x, zero_point, enabled: cachemask(x, scale.to(x.device), zero_point, enabled, -8, 7),
            x,
            zero_point,
            enabled,
            device=device,
        )


def test_infinities_and_nan_are_bounded_as_on_the_cpu(device: torch.device) -> None:
    x = torch.tensor(SPECIAL)
    for zero_point in (0, 3):
        compare(lambda x, z=zero_point: torch.fake_quantize_per_tensor_affine(x, 0.1, z, -8, 7), x, device=device)


@covers("fake_quantize_per_channel_affine_cachemask")
@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_scale_for_each_channel(device: torch.device, dtype: torch.dtype, axis: int) -> None:
    x = torch.randn(5, 5, 5, dtype=dtype).transpose(0, 2)
    scale = torch.rand(5) / 4 + 0.05
    for zero_point in (torch.tensor([0, 1, 2, -3, 4], dtype=torch.int32), torch.tensor([0.4, 1, 2.6, -3, 4.2])):
        compare(
            lambda x, zero_point: torch.ops.aten.fake_quantize_per_channel_affine_cachemask(
                x, scale.to(x.device), zero_point.detach(), axis, -8, 7
            ),
            x,
            zero_point,
            device=device,
        )


@covers(
    "_fake_quantize_learnable_per_tensor_affine",
    "_fake_quantize_learnable_per_tensor_affine_backward",
    "_fake_quantize_learnable_per_channel_affine",
    "_fake_quantize_learnable_per_channel_affine_backward",
)
@pytest.mark.parametrize("grad_factor", [1.0, 0.25])
def test_learnable_scales_and_zero_points(device: torch.device, grad_factor: float) -> None:
    x = torch.randn(4, 6)
    scale, zero_point = torch.tensor([0.1]), torch.tensor([1.0])
    learnable = torch._fake_quantize_learnable_per_tensor_affine
    compare(lambda x, s, z: learnable(x, s, z, -8, 7, grad_factor), x, scale, zero_point, device=device)
    scales, zero_points = torch.rand(6) / 4 + 0.05, torch.tensor([0.0, 1, 2, -3, 4, 1])
    learnable = torch._fake_quantize_learnable_per_channel_affine
    compare(lambda x, s, z: learnable(x, s, z, 1, -8, 7, grad_factor), x, scales, zero_points, device=device)


@covers("_fused_moving_avg_obs_fq_helper")
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("low", "high"), [(0, 255), (-128, 127), (-8, 7)])
def test_moving_averages_of_ranges(
    device: torch.device, per_channel: bool, symmetric: bool, low: int, high: int
) -> None:
    names = ("observer_on", "fake_quant_on", "running_min", "running_max", "scale", "zero_point")

    def state(where: torch.device | str) -> dict[str, torch.Tensor]:
        size = (0,) if per_channel else (1,)
        values = (torch.ones(1), torch.ones(1), torch.full(size, float("inf")), torch.full(size, -float("inf")))
        state = dict(zip(names, (*values, torch.ones(size), torch.zeros(size, dtype=torch.int32)), strict=True))
        return {name: tensor.to(where) for name, tensor in state.items()}

    ours, theirs = state(device), state("cpu")
    flags = ((1, 1), (1, 1), (0, 1), (1, 0), (1, 1))
    inputs = [torch.randn(3, 4, 5) * 2**step + shift for step, shift in enumerate((0, 0.7, 3, -9, 40))]
    for (observer, quantizer), x in zip(flags, inputs, strict=True):
        results = []
        for where, buffers in ((device, ours), ("cpu", theirs)):
            buffers["observer_on"].fill_(observer)
            buffers["fake_quant_on"].fill_(quantizer)
            leaf = x.to(where, copy=True).requires_grad_()
            y = torch.fused_moving_avg_obs_fake_quant(
                leaf, *buffers.values(), 0.1, low, high, 0, per_channel, symmetric
            )
            y.sum().backward()
            results.append([y.detach().cpu(), leaf.grad.cpu()])
        for name in names:
            torch.testing.assert_close(ours[name].cpu(), theirs[name], msg=lambda text, name=name: f"{name}: {text}")
        for mine, expected in zip(*results, strict=True):
            torch.testing.assert_close(mine, expected)


def test_quantisation_aware_training_matches_the_cpu(device: torch.device) -> None:
    def train(where: torch.device | str) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
        x = torch.randn(6, 3, 8, 8)
        activation = quantization.FakeQuantize.with_args(
            observer=quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8
        )
        weight = quantization.FakeQuantize.with_args(
            observer=quantization.MovingAveragePerChannelMinMaxObserver,
            quant_min=-128,
            quant_max=127,
            dtype=torch.qint8,
            qscheme=torch.per_channel_symmetric,
        )
        model.qconfig = quantization.QConfig(activation=activation, weight=weight)
        model = quantization.prepare_qat(model.train()).to(where)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x.to(where)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().cpu())
        return [*losses, *(parameter.detach().cpu() for parameter in model.parameters())]

    # An activation at the border of two integers, which another summation order moves, changes by one scale step.
    for mine, theirs in zip(train(device), train("cpu"), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3)


def test_fused_modules_observe_channels(device: torch.device) -> None:
    def run(where: torch.device | str) -> list[torch.Tensor]:
        torch.manual_seed(1)
        module = quantization.default_fused_per_channel_wt_fake_quant().to(where)
        x = torch.randn(6, 9).to(where)
        return [
            module(x).cpu(),
            module.scale.cpu(),
            module.zero_point.cpu(),
            module.activation_post_process.min_val.cpu(),
        ]

    for mine, theirs in zip(run(device), run("cpu"), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_fake_quantisation_refuses_arguments_as_the_cpu_does(device: torch.device) -> None:
    for where in ("cpu", device):
        x, scales = torch.ones(3, 2, device=where), torch.ones(2, device=where)
        zeros = torch.zeros(2, dtype=torch.int32, device=where)
        for call in (
            lambda x=x: torch.fake_quantize_per_tensor_affine(x, 0.1, 9, -8, 7),
            lambda x=x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 8, 7),
            lambda x=x: torch.fake_quantize_per_tensor_affine(x.int(), 0.1, 0, -8, 7),
            lambda x=x, s=scales, z=zeros: torch.fake_quantize_per_channel_affine(x, s, z, 0, -8, 7),
            lambda x=x, s=scales, z=zeros: torch.fake_quantize_per_channel_affine(x, s, z + 9, 1, -8, 7),
            lambda x=x, s=scales, z=zeros: torch.fake_quantize_per_channel_affine(x, s, z.long(), 1, -8, 7),
        ):
            with pytest.raises(RuntimeError):
                call()
