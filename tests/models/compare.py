"""Runs one model on both devices, and compares what comes of it."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from models.case import Case, mean_square, tensors

# Seconds of training steps to time on each device.
TIMED_SECONDS = 2.0
# A gradient passes more roundings than an output.
GRADIENT_FACTOR = 10
DEVICE = "opencl"


class WrongError(Exception):
    """A result that is not the CPU's."""


def moved(value: Any, device: str) -> Any:
    """Copy inputs to a device.

    Args:
        value: tensors, and lists and mappings with tensors.
        device: where to.

    Returns:
        The same with copies on the device.
    """
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(moved(item, device) for item in value)
    return value


def distance(ours: Iterable[torch.Tensor], theirs: Iterable[torch.Tensor]) -> float:
    """Compare tensors with those of the CPU.

    Args:
        ours: of the device.
        theirs: of the CPU.

    Returns:
        The greatest difference of two elements, in units of the greatest element of that tensor, or of 1e-3 if that is
        smaller.

    Raises:
        WrongError: where number, shapes or whole numbers differ.
    """
    ours, theirs = list(ours), list(theirs)
    if len(ours) != len(theirs):
        raise WrongError(f"{len(ours)} tensors in place of {len(theirs)}")
    worst = 0.0
    for index, (a, b) in enumerate(zip(map(_dense, ours), map(_dense, theirs), strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise WrongError(f"tensor {index} is {a.dtype} {list(a.shape)} in place of {b.dtype} {list(b.shape)}")
        if not b.is_floating_point() and not b.is_complex():
            if not torch.equal(a, b):
                raise WrongError(f"tensor {index}, of {b.dtype}, differs")
        elif b.numel() > 0:
            worst = max(worst, _distance(a, b))
    return worst


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    on_host = tensor.detach().cpu()
    return on_host if on_host.layout == torch.strided else on_host.to_dense()


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    same = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(same, 0, (a - b).abs())
    if not difference.isfinite().all():
        return float("inf")
    scale = b.abs().nan_to_num(0, 0, 0).max().clamp(min=1e-3)
    return (difference.max() / scale).item()


@contextmanager
def _drawn_on_host() -> Iterator[None]:
    """Models that draw numbers while they train, for example which boxes to sample, draw the same on both devices."""
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


def _without_dropout(model: nn.Module) -> nn.Module:
    """Both devices draw other numbers: dropout has tests of its own."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        if hasattr(module, "drop_prob"):
            module.drop_prob = 0.0
    return model


def _called(model: nn.Module, inputs: dict[str, Any]) -> Any:
    named = {name: value for name, value in inputs.items() if name != "args"}
    return model(*inputs.get("args", ()), **named)


class Pair:
    """A model and its inputs on both devices, and how far their results are apart."""

    def __init__(self, case: Case) -> None:
        self.case = case
        # Not a copy: PyTorch copies no module that has a tensor in CSR layout.
        self.models = {}
        for device in ("cpu", DEVICE):
            torch.manual_seed(0)
            self.models[device] = _without_dropout(case.build()).to(device)
        inputs = case.inputs()
        self.inputs = {device: moved(inputs, device) for device in self.models}
        self.errors: dict[str, float] = {}

    def both(self, run: Callable[[str], Any]) -> tuple[Any, Any]:
        """Run the same on both devices, with the same random numbers.

        Args:
            run: takes the device.

        Returns:
            The results of the OpenCL device and of the CPU.
        """
        results = []
        for device in (DEVICE, "cpu"):
            torch.manual_seed(1)
            with _drawn_on_host():
                results.append(run(device))
        return results[0], results[1]

    def check(self, phase: str, ours: Any, theirs: Any, factor: float = 1) -> None:
        """Compare results.

        Args:
            phase: what they are of.
            ours: of the device.
            theirs: of the CPU.
            factor: of the case's tolerance.

        Raises:
            WrongError: where they are too far apart.
        """
        error = distance(tensors(ours), tensors(theirs))
        self.errors[phase] = error
        if not error <= factor * self.case.tolerance:
            raise WrongError(f"{phase}: {error:.1e} from the CPU's, more than {factor * self.case.tolerance:.0e}")

    def forward(self) -> None:
        """Compare outputs in evaluation mode."""
        for model in self.models.values():
            model.eval()
        with torch.no_grad():
            self.check("forward", *self.both(lambda device: _called(self.models[device], self.inputs[device])))

    def loss(self, device: str) -> torch.Tensor:
        """Compute a loss.

        Args:
            device: where.

        Returns:
            One number.
        """
        return (self.case.loss or mean_square)(_called(self.models[device], self.inputs[device]))

    def backward(self, device: str) -> torch.Tensor:
        """Compute gradients.

        Args:
            device: where.

        Returns:
            The loss.
        """
        self.models[device].zero_grad()
        loss = self.loss(device)
        loss.backward()
        return loss

    def train(self) -> None:
        """Compare gradients, and a step of SGD and of AdamW."""
        for model in self.models.values():
            model.train()
        self.check("loss", *self.both(self.backward))
        ours, theirs = ({n: p.grad for n, p in self.models[device].named_parameters()} for device in (DEVICE, "cpu"))
        missing = [name for name in theirs if (ours[name] is None) != (theirs[name] is None)]
        if missing:
            raise WrongError(f"gradients of one device only: {missing[:3]}")
        given = [name for name in theirs if theirs[name] is not None]
        self.check("gradients", [ours[n] for n in given], [theirs[n] for n in given], GRADIENT_FACTOR)
        self.check("buffers", list(self.models[DEVICE].buffers()), list(self.models["cpu"].buffers()))
        self.step("SGD", lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.01))
        # The first step of AdamW is as long where a gradient is nothing but rounding: both get the same gradients.
        for name in given:
            ours[name].copy_(theirs[name])
        self.step("AdamW", lambda p: torch.optim.AdamW(p, lr=0.01))

    def step(self, name: str, optimizer: Callable) -> None:
        """Compare parameters after a step.

        Args:
            name: the optimizer's.
            optimizer: makes one of parameters.
        """
        for model in self.models.values():
            optimizer(model.parameters()).step()
        self.check(name, *(list(self.models[device].parameters()) for device in (DEVICE, "cpu")))

    def generated(self) -> None:
        """Compare generated tokens; of sampled ones, that the seed decides them."""
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

    def seconds(self, device: str) -> float:
        """Time a training step, or an inference where the model is not trained.

        Args:
            device: where.

        Returns:
            The shortest time, once kernels are built.
        """
        once = self.backward if self.case.trains else self.inference
        times: list[float] = []
        until = time.monotonic() + TIMED_SECONDS
        while len(times) < 3 or time.monotonic() < until:
            start = time.perf_counter()
            once(device)
            if device == DEVICE:
                torch.opencl.synchronize()
            times.append(time.perf_counter() - start)
        return min(times)

    def inference(self, device: str) -> None:
        """Call the model without gradients.

        Args:
            device: where.
        """
        with torch.no_grad():
            _called(self.models[device], self.inputs[device])


def run(case: Case, timed: bool) -> dict[str, Any]:
    """Compare a model on both devices.

    Args:
        case: the model.
        timed: times it too if true.

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
        if case.trains:
            pair.train()
        pair.generated()
        if timed:
            torch.ops.torch_opencl.wait_for_builds(60.0)
            ours, theirs = pair.seconds(DEVICE), pair.seconds("cpu")
            result |= {"milliseconds": ours * 1e3, "cpu_milliseconds": theirs * 1e3, "ratio": theirs / ours}
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
