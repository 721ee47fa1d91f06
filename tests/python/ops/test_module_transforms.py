"""torch.func and forward-mode differentiation of PyTorch's modules, and batched gradients, against the CPU."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, jvp, vmap
from torch.nn.modules.dropout import _DropoutNd
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.utils._pytree import tree_leaves, tree_map

# Jacobians of larger inputs are slow.
MOST_ELEMENTS = 200
# Their random values differ between devices.
RANDOM = ("Dropout", "RReLU", "FractionalMaxPool", "Lazy")
INFOS = [
    pytest.param(info, id=info.formatted_name)
    for info in module_db
    if not any(name in info.module_cls.__name__ for name in RANDOM)
]


class Call:
    """A module as a function of its first floating input."""

    def __init__(self, module: nn.Module, inputs: Any, device: torch.device | str) -> None:
        def moved(value: Any) -> Any:
            return value.to(device) if isinstance(value, torch.Tensor) else value

        self.module = copy.deepcopy(module).to(device)
        self.args = list(tree_map(moved, inputs.args))
        self.kwargs = tree_map(moved, inputs.kwargs)
        self.position = next(i for i, arg in enumerate(self.args) if is_float(arg))
        self.x = self.args[self.position].detach()

    def with_parameters(self, parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        args = [x if i == self.position else arg for i, arg in enumerate(self.args)]
        results = tree_leaves(functional_call(self.module, parameters, tuple(args), self.kwargs))
        return next(result for result in results if is_float(result))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.with_parameters({}, x)

    def pair(self) -> torch.Tensor:
        return torch.stack([self.x, self.x * 0.5])


def is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def gradients_of_samples(call: Call) -> Any:
    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return call.with_parameters(parameters, x).square().sum()

    parameters = {name: parameter.detach() for name, parameter in call.module.named_parameters()}
    return vmap(grad(loss), in_dims=(None, 0))(parameters, call.pair()) if parameters else {}


def batch_of_gradients(call: Call) -> Any:
    x = call.x.clone().requires_grad_()
    y = call(x)
    batch = torch.linspace(-1, 1, 3 * y.numel()).view(3, *y.shape).to(y.device)
    return torch.autograd.grad(y, x, batch, is_grads_batched=True)


TRANSFORMS: dict[str, Callable[[Call], Any]] = {
    "jacrev": lambda call: jacrev(call)(call.x),
    "jvp": lambda call: jvp(call, (call.x,), (torch.ones_like(call.x),)),
    "vmap": lambda call: vmap(call)(call.pair()),
    "gradients of samples": gradients_of_samples,
    "batch of gradients": batch_of_gradients,
}


def made(info: ModuleInfo) -> tuple[nn.Module, Any] | None:
    """Make a module without dropout and running statistics, and a small input; None if it has no such input."""
    torch.manual_seed(0)
    for sample in info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=True):
        inputs = sample.forward_input
        if inputs is None or not any(is_float(arg) and arg.numel() <= MOST_ELEMENTS for arg in inputs.args):
            continue
        module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
        for part in module.modules():
            if isinstance(part, _DropoutNd):
                part.p = 0.0
            if isinstance(getattr(part, "dropout", None), float):
                part.dropout = 0.0
            if getattr(part, "track_running_stats", False):
                part.eval()
        return module, inputs
    return None


@pytest.mark.parametrize("info", INFOS)
def test_transforms_of_modules(info: ModuleInfo, device: torch.device) -> None:
    case = made(info)
    if case is None:
        pytest.skip(f"takes no floating tensor of at most {MOST_ELEMENTS} elements")
    for name, transform in TRANSFORMS.items():
        try:
            expected = transform(Call(*case, "cpu"))
        except (RuntimeError, NotImplementedError):
            # The CPU lacks this derivative.
            continue
        actual = tree_map(lambda result: result.cpu(), transform(Call(*case, device)))
        torch.testing.assert_close(
            actual, expected, rtol=1e-3, atol=1e-4, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.func.jacfwd(lambda y: torch.dot(y, x))(x),
        lambda x: torch.func.jacfwd(lambda y: torch.vdot(x, y))(x),
        torch.func.hessian(lambda y: nn.functional.logsigmoid(y @ y)),
        lambda x: vmap(lambda t: jvp(nn.functional.logsigmoid, (x[0],), (t,)))(x),
        lambda x: vmap(torch.func.vjp(lambda w: nn.functional.prelu(x, w), x[:1])[1])(x.expand(3, 5)),
    ],
    ids=["dot", "vdot", "logsigmoid", "logsigmoid of a number", "prelu"],
)
def test_transforms_of_operators(function: Callable[[torch.Tensor], Any], device: torch.device) -> None:
    """Zero tangents without memory, scalars, and batches of only some arguments."""
    x = torch.linspace(-1, 1, 5)
    actual = tree_map(lambda result: result.cpu(), function(x.to(device)))
    torch.testing.assert_close(actual, function(x))
