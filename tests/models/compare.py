"""Runs one model on both devices, and compares the results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from models.case import Case, mean_square, tensors
from models.distance import WrongError, distance, moved, wide

# An element beyond its tolerance may be this many times as far from the float64 result as the CPU's float32 is.
CPU_FACTOR = 4
# How many CPU results with other roundings are used to measure that distance, besides the CPU's own.
OTHER_ROUNDINGS = 3
# A gradient passes more roundings than an output.
GRADIENT_FACTOR = 10
DEVICE = "opencl"


@contextmanager
def _drawn_on_host() -> Iterator[None]:
    """Make models that draw random values in training, such as which boxes to sample, draw the same on both devices."""
    originals = {name: getattr(torch, name) for name in ("randperm", "rand", "randn")}

    def on_host(draw: Callable) -> Callable:
        def call(*args: Any, device: Any = None, **options: Any) -> torch.Tensor:
            return draw(*args, **options).to(device or "cpu")

        return call

    try:
        for name, draw in originals.items():
            setattr(torch, name, on_host(draw))
        yield
    finally:
        for name, draw in originals.items():
            setattr(torch, name, draw)


def without_dropout(model: nn.Module) -> nn.Module:
    """Turn off dropout, whose random values differ between devices.

    Args:
        model: the model.

    Returns:
        The same model.
    """
    for module in model.modules():
        # torchvision's StochasticDepth is not a PyTorch dropout module.
        if isinstance(module, nn.modules.dropout._DropoutNd) or isinstance(getattr(module, "p", None), float):
            module.p = 0.0
        # Stochastic depth in timm and transformers, and functions that modules call (nn.MultiheadAttention).
        for name in ("drop_prob", "drop_rate", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def _rounded_otherwise(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + torch.finfo(torch.float32).eps * torch.randn_like(parameter))
    return model


def called(model: nn.Module, inputs: dict[str, Any]) -> Any:
    """Call a model.

    Args:
        model: the model.
        inputs: its arguments by name, as a case makes them.

    Returns:
        What it returns.
    """
    named = {name: value for name, value in inputs.items() if name != "args"}
    return model(*inputs.get("args", ()), **named)


def differentiated(case: Case, model: nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
    """Compute gradients of a model.

    Args:
        case: defines the loss.
        model: the model.
        inputs: its inputs.

    Returns:
        The loss.
    """
    model.zero_grad()
    loss = (case.loss or mean_square)(called(model, inputs))
    loss.backward()
    return loss


class Pair:
    """A model and its inputs on both devices, and how much their results differ."""

    def __init__(self, case: Case) -> None:
        self.case = case
        # Not a copy: PyTorch cannot copy a module that has a tensor in CSR layout.
        self.models = {}
        for device in ("cpu", DEVICE):
            torch.manual_seed(0)
            self.models[device] = without_dropout(case.build()).to(device)
        inputs = case.inputs()
        self.inputs = {device: moved(inputs, lambda tensor, to=device: tensor.to(to)) for device in self.models}
        self.errors: dict[str, float] = {}

    def both(self, run: Callable[[str], Any]) -> tuple[Any, Any]:
        """Run a function on both devices, with the same random values.

        Args:
            run: the function, called with the device.

        Returns:
            The results of the OpenCL device and of the CPU.
        """
        results = []
        for device in (DEVICE, "cpu"):
            torch.manual_seed(1)
            with _drawn_on_host():
                results.append(run(device))
        return results[0], results[1]

    def check(
        self,
        phase: str,
        ours: Any,
        theirs: Any,
        factor: float = 1,
        exact: Callable[[nn.Module, dict[str, Any]], Any] | None = None,
    ) -> None:
        """Compare results.

        Args:
            phase: what is compared.
            ours: of the device.
            theirs: of the CPU.
            factor: a factor for the case's tolerance.
            exact: computes the results again from a new model and inputs in float64. Networks with random weights
                amplify the rounding of their input: beyond the tolerance, the device may be as far from this result as
                the CPU is.

        Raises:
            WrongError: they differ too much.
        """
        ours, theirs = tensors(ours), tensors(theirs)
        error = distance(ours, theirs)
        self.errors[phase] = error
        if error <= factor * self.case.tolerance:
            return
        message = f"{phase}: {error:.1e} from the CPU's, more than {factor * self.case.tolerance:.0e}"
        if exact is not None:
            own, cpu = self.exact_errors(ours, theirs, exact)
            if own <= CPU_FACTOR * cpu:
                return
            message += f"; {own:.1e} from the result in float64, and the CPU's {cpu:.1e}"
        raise WrongError(message)

    def exact_errors(
        self,
        ours: list[torch.Tensor],
        theirs: list[torch.Tensor],
        exact: Callable[[nn.Module, dict[str, Any]], Any],
    ) -> tuple[float, float]:
        """Compare results with results in float64.

        Args:
            ours: of the device.
            theirs: of the CPU.
            exact: computes the results again from a model and its inputs.

        Returns:
            The errors of the device and of the CPU.
        """
        results = self._computed(exact, nn.Module.double, wide)
        cpu = distance(map(wide, theirs), results)
        # If rounding decides the side of a ReLU or the element of a maximum, one CPU result is a poor measure: the
        # others start from weights with another rounding.
        for _ in range(OTHER_ROUNDINGS):
            cpu = max(cpu, distance(self._computed(exact, _rounded_otherwise, torch.Tensor.clone), results))
        return distance(map(wide, ours), results), cpu

    def _computed(
        self,
        exact: Callable[[nn.Module, dict[str, Any]], Any],
        changed: Callable[[nn.Module], nn.Module],
        change: Callable[[torch.Tensor], torch.Tensor],
    ) -> list[torch.Tensor]:
        """Compute results in float64, with a changed new model and changed inputs."""
        generator = torch.get_rng_state()
        torch.manual_seed(0)
        model = without_dropout(self.case.build())
        torch.set_rng_state(generator)
        model = changed(model)
        generator = torch.get_rng_state()
        torch.manual_seed(1)
        with _drawn_on_host():
            results = tensors(exact(model, moved(self.inputs["cpu"], change, self.case.narrow)))
        torch.set_rng_state(generator)
        # A loss is float32 even then.
        return [wide(each.detach()) for each in results]

    def forward(self) -> None:
        """Compare outputs in evaluation mode."""
        for model in self.models.values():
            model.eval()
        with torch.no_grad():
            results = self.both(lambda device: called(self.models[device], self.inputs[device]))
            self.check("forward", *results, exact=lambda model, inputs: called(model.eval(), inputs))

    def backward(self, device: str) -> torch.Tensor:
        """Compute gradients.

        Args:
            device: where.

        Returns:
            The loss.
        """
        return differentiated(self.case, self.models[device], self.inputs[device])

    def train(self) -> None:
        """Compare gradients, and a step of SGD and of AdamW."""
        for model in self.models.values():
            model.train()
        self.check("loss", *self.both(self.backward), exact=partial(differentiated, self.case))
        ours, theirs = ({n: p.grad for n, p in self.models[device].named_parameters()} for device in (DEVICE, "cpu"))
        missing = [name for name in theirs if (ours[name] is None) != (theirs[name] is None)]
        if missing:
            raise WrongError(f"gradients of one device only: {missing[:3]}")
        given = [name for name in theirs if theirs[name] is not None]

        def exact(model: nn.Module, inputs: dict[str, Any]) -> list[torch.Tensor]:
            differentiated(self.case, model, inputs)
            parameters = dict(model.named_parameters())
            return [parameters[name].grad for name in given]

        self.check("gradients", [ours[n] for n in given], [theirs[n] for n in given], GRADIENT_FACTOR, exact)
        self.check("buffers", list(self.models[DEVICE].buffers()), list(self.models["cpu"].buffers()))
        # Parameters then differ only by the step: the first step of AdamW is as long for a gradient that is only
        # rounding.
        for name in given:
            ours[name].copy_(theirs[name])
        self.step("SGD", lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.01))
        self.step("AdamW", lambda p: torch.optim.AdamW(p, lr=0.01))

    def step(self, name: str, optimizer: Callable) -> None:
        """Compare parameters after a step.

        Args:
            name: the optimizer's name.
            optimizer: makes one for parameters.
        """
        for model in self.models.values():
            optimizer(model.parameters()).step()
        self.check(name, *(list(self.models[device].parameters()) for device in (DEVICE, "cpu")))

    def generated(self) -> None:
        """Compare generated tokens; for sampled ones, check that the seed determines them."""
        for model in self.models.values():
            model.eval()
        for options in self.case.generate:
            name = "generate " + ", ".join(f"{key}={value}" for key, value in options.items())
            run = lambda device, options=options: self.models[device].generate(**self.inputs[device], **options)  # noqa: E731
            if options.get("do_sample"):
                torch.manual_seed(1)
                first = run(DEVICE)
                torch.manual_seed(1)
                self.check(name, run(DEVICE).cpu(), first.cpu())
            else:
                self.check(name, *self.both(run))


def run(case: Case) -> dict[str, Any]:
    """Compare a model on both devices.

    Args:
        case: the model.

    Returns:
        The findings, for JSON.
    """
    torch.opencl.reset_fallbacks()
    result: dict[str, Any] = {"name": case.name, "status": "right", "message": ""}
    pair = None
    try:
        pair = Pair(case)
        if case.evaluates:
            pair.forward()
        else:
            with torch.no_grad():
                called(pair.models[DEVICE].eval(), pair.inputs[DEVICE])
        if case.trains:
            pair.train()
        pair.generated()
    except WrongError as error:
        result |= {"status": "wrong", "message": str(error)}
    except Exception as error:
        last = error.__traceback__
        while last and last.tb_next:
            last = last.tb_next
        where = f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}" if last else ""
        result |= {"status": "error", "message": f"{type(error).__name__}: {error} ({where})"}
    fallbacks = torch.opencl.fallbacks()
    if fallbacks and result["status"] == "right":
        result |= {"status": "fallback", "message": ", ".join(fallbacks)}
    return result | {"fallbacks": fallbacks, "errors": pair.errors if pair else {}}
