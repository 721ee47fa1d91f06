"""Checks of torch.optim: parameters and state after some steps, with each option of PyTorch's own tests."""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from op_checks import CPU, Case, like
from op_samples import mirror_all
from torch.testing._internal.common_optimizers import OptimizerInfo
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves

STEPS = 3
SHAPES = ((5, 4), (3, 3))


def checks(info: OptimizerInfo, dtype: torch.dtype) -> dict[str, Callable[[], Iterable[Case]]]:
    """List the checks of an optimizer.

    Args:
        info: the optimizer.
        dtype: the dtype of the parameters.

    Returns:
        One check for each implementation of a step.
    """
    flags: dict[str, dict[str, bool]] = {"loop": {"foreach": False} if "foreach" in info.supported_impls else {}}
    flags |= {flag: {flag: True} for flag in info.supported_impls if flag != "differentiable"}
    return {name: partial(_cases, info, dtype, flag) for name, flag in flags.items()}


def _cases(info: OptimizerInfo, dtype: torch.dtype, flag: dict[str, bool]) -> Iterator[Case]:
    for given in info.optim_inputs_func(device="cpu"):
        # The input defines the dtype of the computation, also when a wider dtype decides.
        parameters = [like(torch.empty(shape, dtype=dtype, device=CPU), seed) for seed, shape in enumerate(SHAPES)]
        sample = SampleInput(parameters, kwargs={**deepcopy(given.kwargs), **flag})
        yield Case(sample, partial(_steps, info))


def _steps(info: OptimizerInfo, sample: SampleInput, device: torch.device) -> list[Any]:
    given, kwargs = mirror_all((sample.input, deepcopy(sample.kwargs)), device)
    parameters = [tensor.requires_grad_() for tensor in given]
    optimizer = info.optim_cls(parameters, **kwargs)

    def closure() -> torch.Tensor:
        """The square of the distance from 1, with sparse gradients if the optimizer needs them."""
        optimizer.zero_grad()
        loss = sum(((parameter - 1) ** 2).sum() for parameter in parameters)
        loss.backward()
        if info.only_supports_sparse_grads:
            for parameter in parameters:
                parameter.grad = parameter.grad.to_sparse()
        return loss.detach()

    losses = [optimizer.step(closure) for _ in range(STEPS)]
    # Step counts may be CPU tensors.
    state = [t for t in tree_leaves(optimizer.state_dict()["state"]) if isinstance(t, torch.Tensor) and t.dim()]
    return [*losses, *(parameter.detach() for parameter in parameters), *state]
