"""A model to compare, and how it is called."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Case:
    """A model with random weights, and inputs for it.

    Args:
        name: the library and the model, "timm/vit".
        build: makes the model.
        inputs: makes its arguments by name, on the CPU; `args` is a tuple of the positional ones.
        loss: the scalar to differentiate, from the model's output; by default the mean square of all floats in it.
        generate: arguments of calls of `generate`, whose results must equal the CPU's, or if they are sampled, be equal
            in two runs.
        tolerance: the greatest distance of a tensor from the CPU's, relative to the greatest element.
        evaluates: compares outputs in evaluation mode; otherwise they are only computed.
        trains: compares gradients and optimizer steps.
        narrow: names of inputs that the model does not accept in float64.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], dict[str, Any]]
    loss: Callable[[Any], torch.Tensor] | None = None
    generate: Sequence[dict[str, Any]] = field(default_factory=tuple)
    tolerance: float = 1e-4
    evaluates: bool = True
    trains: bool = True
    narrow: Sequence[str] = ()

    @property
    def library(self) -> str:
        """The library that the model is from."""
        return self.name.partition("/")[0]


def tensors(value: Any) -> list[torch.Tensor]:
    """List the tensors in a model's output.

    Args:
        value: tensors, and lists, mappings and dataclasses with tensors.

    Returns:
        All tensors, in order.
    """
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        # Caches of keys and values, graphs, distributions.
        value = vars(value).values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for item in value for tensor in tensors(item)]


def mean_square(output: Any) -> torch.Tensor:
    """Reduce an output to a scalar.

    Args:
        output: the model's output.

    Returns:
        The mean over its tensors of their mean squares.
    """
    parts = [tensor for tensor in tensors(output) if tensor.is_floating_point() and tensor.requires_grad]
    return torch.stack([part.float().square().mean() for part in parts]).mean()
