"""Checks of a pair: lists of calls, which are made on demand."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import op_checks
import op_corners
import torch
from op_checks import Case
from op_samples import call, samples, tolerance
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from sweep.pairs import MODULES, OPS, OPTIMIZERS, Pair
from sweep.planted import PLANTED

# In this order: a crash costs a process, and the checks before it are already judged.
Checks = dict[str, Callable[[], Iterable[Case]]]


@dataclass(frozen=True)
class Subject:
    """The checks of a pair.

    Attributes:
        dtype: the dtype of the samples.
        checks: the checks by name.
        tolerances: arguments of `assert_same`.
        info: the OpInfo of an operator.
    """

    dtype: torch.dtype
    checks: Checks
    tolerances: dict[str, Any] = field(default_factory=dict)
    info: OpInfo | None = None


def subject(pair: Pair) -> Subject:
    """Make the checks of a pair.

    Args:
        pair: the pair.

    Returns:
        Its checks.
    """
    if pair.kind == "op":
        return _op(OPS[pair.name], pair.torch_dtype)
    if pair.kind == "planted":
        sample = SampleInput(torch.ones(3))
        function = PLANTED[pair.name]
        cases = [Case(sample, lambda sample, device: call(function, sample, device))]
        return Subject(torch.float32, {"forward": lambda: cases, "after": lambda: cases})
    # Imported late: they need more of PyTorch.
    from sweep import modules, optimizers

    checks = (
        modules.checks(MODULES[pair.name], pair.torch_dtype)
        if pair.kind == "module"
        else optimizers.checks(OPTIMIZERS[pair.name], pair.torch_dtype)
    )
    return Subject(pair.torch_dtype, checks)


def _op(info: OpInfo, dtype: torch.dtype) -> Subject:
    checks: Checks = {"forward": partial(op_checks.forward, info, dtype)}
    if info.supports_out:
        checks["out"] = partial(op_checks.out, info, dtype)
        checks["overlap"] = partial(op_corners.overlapping_out, info, dtype)
    if op_checks.has_inplace(info):
        checks["inplace"] = partial(op_checks.inplace, info, dtype)
    if info.supports_autograd and dtype in info.supported_backward_dtypes("cpu"):
        checks["backward"] = partial(op_checks.backward, info, dtype)
        checks["pairs"] = partial(op_corners.pairs, info, dtype)
        checks["batches"] = partial(op_corners.batches_of_gradients, info, dtype)
        checks["vmap_backward"] = partial(op_corners.vmap_of_gradients, info, dtype)
        checks["dims"] = partial(op_corners.negative_dims, info, dtype)
        if info.supports_gradgrad:
            checks["gradgrad"] = partial(op_checks.gradgrad, info, dtype)
        if info.supports_forward_ad:
            checks["jvp"] = partial(op_checks.jvp, info, dtype)
    checks["vmap"] = partial(op_checks.vmap, info, dtype)
    if info.error_inputs_func is not None and dtype == _first_dtype(info):
        checks["errors"] = partial(_errors, info)
    return Subject(dtype, checks, tolerance(info, dtype), info)


def _first_dtype(info: OpInfo) -> torch.dtype:
    """The dtype for bad arguments, which use their own dtypes."""
    dtypes = info.supported_dtypes("cpu")
    return torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)


def _errors(info: OpInfo) -> Iterator[Case]:
    """Calls with bad arguments; their result is the name of the exception."""
    for error in info.error_inputs("cpu"):
        if _raised(info.op, error.sample_input, op_checks.CPU) != "no exception":
            yield Case(error.sample_input, partial(_raised, info.op))


def _raised(function: Callable, sample: SampleInput, device: torch.device) -> str:
    try:
        call(function, sample, device)
        if device.type != "cpu":
            torch.opencl.synchronize()
    except Exception as error:
        return type(error).__name__
    return "no exception"


def sample_to_time(subject: Subject) -> SampleInput | None:
    """Choose the call to time.

    Args:
        subject: an operator.

    Returns:
        The sample with the most elements.
    """
    if subject.info is None:
        return None
    every = samples(subject.info, subject.dtype)
    return max(every, key=elements, default=None)


def elements(sample: SampleInput) -> int:
    """Count the elements of all tensors.

    Args:
        sample: the arguments.

    Returns:
        Their number.
    """
    leaves = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
