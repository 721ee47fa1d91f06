"""Checks of torch.nn's modules: outputs, buffers and gradients, in training and evaluation."""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from op_checks import Case, differentiate
from op_samples import SAMPLES, mirror_all
from torch.testing._internal.common_modules import ModuleInfo
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves


def checks(info: ModuleInfo, dtype: torch.dtype) -> dict[str, Callable[[], Iterable[Case]]]:
    """List the checks of a module.

    Args:
        info: the module.
        dtype: the dtype of its parameters and inputs.

    Returns:
        The checks by name.
    """
    return {"forward": partial(_cases, info, dtype, False), "backward": partial(_cases, info, dtype, True)}


def _cases(info: ModuleInfo, dtype: torch.dtype, differentiates: bool) -> Iterator[Case]:
    for training in (False, True):
        torch.manual_seed(0)
        given = info.module_inputs_func(info, "cpu", dtype, requires_grad=differentiates, training=training)
        for inputs in list(given)[:SAMPLES]:
            made = inputs.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(dtype=dtype).train(training)
            args, kwargs = inputs.forward_input.args, inputs.forward_input.kwargs
            if info.is_lazy:
                module(*deepcopy(args), **deepcopy(kwargs))
            # The input, a 0-d tensor, defines the dtype of the computation, also when a wider dtype decides.
            sample = SampleInput(torch.zeros((), dtype=dtype), args=tuple(args), kwargs=dict(kwargs))
            yield Case(sample, partial(_run, module, differentiates))


def _run(module: torch.nn.Module, differentiates: bool, sample: SampleInput, device: torch.device) -> Any:
    copied = deepcopy(module).to(device, sample.input.dtype)
    args, kwargs = mirror_all((sample.args, sample.kwargs), device)
    results = copied(*args, **kwargs)
    if not differentiates:
        return results, dict(copied.named_buffers())
    inputs = [*copied.parameters(), *(t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))]
    return differentiate(results, [tensor for tensor in inputs if tensor.requires_grad], seed=1)
