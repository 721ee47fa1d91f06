"""Calls of an OpInfo's operator in all variants, each computable on any device, to compare devices with the CPU."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from op_samples import NoFallback, assert_as_cpu, call, mirror_all, samples, settled, tolerance
from torch.autograd import forward_ad
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

CPU = torch.device("cpu")
# Their in-place results include uninitialised memory.
UNINITIALISED = {"resize_", "resize_as_"}
# The number of samples to call with out=, and to differentiate twice or call in other costly ways.
OUT_SAMPLES = 4
FEW_SAMPLES = 2


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        sample: its arguments, on the CPU.
        compute: computes the results of a sample on a device.
    """

    sample: SampleInput
    compute: Callable[[SampleInput, torch.device], Any]


def assert_right(case: Case, info: OpInfo, dtype: torch.dtype, device: torch.device) -> None:
    """Compare a call on a device with the CPU; no operator of the table may fall back.

    Args:
        case: the call.
        info: the op.
        dtype: its inputs' dtype.
        device: the device.
    """
    with NoFallback():
        actual = case.compute(case.sample, device)
    assert_as_cpu(actual, lambda sample: case.compute(sample, CPU), case.sample, dtype, **tolerance(info, dtype))


# --- as a function


def forward(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Call the function.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each sample, contiguous or not.
    """
    for sample in samples(info, dtype):
        yield Case(sample, partial(_forward, info.op))


def _forward(function: Callable, sample: SampleInput, device: torch.device) -> Any:
    return settled(function, call(function, sample, device), sample)


# --- with out=


def out(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Call the function with out=: a tensor of the right size, one with gaps between elements, and one to resize.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        Three calls for each of the first samples that the CPU accepts with out=.
    """
    for sample in samples(info, dtype)[:OUT_SAMPLES]:
        for make in (torch.empty_like, strided_like, lambda tensor: tensor.new_empty(0)):
            if _takes_out(info.op, make, unprocessed(sample)):
                yield Case(sample, partial(_into, info.op, make))


def _takes_out(function: Callable, make: Callable, sample: SampleInput) -> bool:
    """Return true if the CPU supports out= here, and respects strides and sizes of the given tensor."""
    torch.manual_seed(0)
    expected = call(function, sample)
    given = tree_map_only(torch.Tensor, make, expected)
    torch.manual_seed(0)
    try:
        call(function, sample, out=given)
        torch.testing.assert_close(given, expected, rtol=0, atol=0, equal_nan=True)
    except (RuntimeError, TypeError, AssertionError):
        return False
    return True


def unprocessed(sample: SampleInput) -> SampleInput:
    """Drop the post-processing of results.

    Args:
        sample: the arguments, and the post-processing by tests.

    Returns:
        The arguments alone.
    """
    return SampleInput(sample.input, args=sample.args, kwargs=sample.kwargs)


def strided_like(tensor: torch.Tensor) -> torch.Tensor:
    """Make an uninitialised tensor of the same shape in which no two elements are adjacent in memory.

    Args:
        tensor: has the shape, the dtype and the device.

    Returns:
        The tensor.
    """
    return tensor.new_empty((*tensor.shape, 2)).select(-1, 1)


def _into(function: Callable, make: Callable, sample: SampleInput, device: torch.device) -> Any:
    results = call(function, unprocessed(sample))
    if device.type != "cpu":
        results = tree_map_only(torch.Tensor, lambda tensor: make(tensor.to(device)), results)
        call(function, unprocessed(sample), device, out=results)
    return settled(function, sample.output_process_fn_grad(results), sample)


# --- in place


def inplace(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Call the in-place method.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each sample whose input can hold the result: the other inputs may broadcast, or promote to its dtype.
    """
    for sample in samples(info, dtype):
        try:
            _forward(info.inplace_variant, sample, CPU)
        except RuntimeError:
            continue
        yield Case(sample, partial(_forward, info.inplace_variant))


def has_inplace(info: OpInfo) -> bool:
    """Return true if there is an in-place method with a deterministic result.

    Args:
        info: the op.

    Returns:
        True if `inplace` has something to call.
    """
    return info.inplace_variant is not None and info.name not in UNINITIALISED


# --- derivatives


def backward(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Differentiate.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each sample.
    """
    for sample in samples(info, dtype, requires_grad=True):
        yield Case(sample, partial(gradients, info.op))


def gradgrad(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Differentiate twice.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each of a few samples.
    """
    for sample in spread(samples(info, dtype, requires_grad=True)):
        yield Case(sample, partial(gradients, info.op, twice=True))


def spread(every: list[SampleInput]) -> list[SampleInput]:
    """Choose a few samples.

    Args:
        every: all of them.

    Returns:
        At most FEW_SAMPLES, the first among them.
    """
    return every[:: max(1, -(-len(every) // FEW_SAMPLES))]


def gradients(
    function: Callable, sample: SampleInput, device: torch.device, twice: bool = False
) -> list[torch.Tensor | None]:
    """Differentiate a weighted sum of the results by all inputs; weights keep symmetric errors from cancelling.

    Args:
        function: the op.
        sample: its arguments, on the CPU.
        device: where to call it.
        twice: also differentiates a weighted sum of the gradients.

    Returns:
        The gradients; empty if there is nothing to differentiate.
    """
    arguments = mirror_all((sample.input, sample.args, sample.kwargs), device)
    first, args, kwargs = arguments
    results = sample.output_process_fn_grad(function(first, *args, **kwargs))
    inputs = [t for t in tree_flatten(arguments)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    found = differentiate(results, inputs, seed=1, create_graph=twice)
    return differentiate(found, inputs, seed=2) if twice else found


def differentiate(
    results: Any, inputs: list[torch.Tensor], seed: int, create_graph: bool = False
) -> list[torch.Tensor | None]:
    """Differentiate a weighted sum.

    Args:
        results: the tensors to sum.
        inputs: the tensors to differentiate by.
        seed: the seed of the weights.
        create_graph: makes gradients differentiable.

    Returns:
        The gradients.
    """
    results = [r for r in tree_flatten(results)[0] if isinstance(r, torch.Tensor) and r.requires_grad]
    if not results or not inputs:
        return []
    weights = [like(result, seed + i) for i, result in enumerate(results)]
    return list(torch.autograd.grad(results, inputs, weights, allow_unused=True, create_graph=create_graph))


def like(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Make random values that are equal on all devices, and, being float32 values, in wider dtypes.

    Args:
        tensor: has the shape, the dtype and the device.
        seed: the seed of the values.

    Returns:
        The values.
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tensor.shape, generator=generator).to(tensor.device, tensor.dtype)


def jvp(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Differentiate in forward mode.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each of a few samples.
    """
    for sample in spread(samples(info, dtype, requires_grad=True)):
        yield Case(sample, partial(_tangents, info.op))


def _tangents(function: Callable, sample: SampleInput, device: torch.device) -> list[torch.Tensor | None]:
    leaves, structure = tree_flatten(mirror_all((sample.input, sample.args, sample.kwargs), device))
    with forward_ad.dual_level():
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaves[i] = forward_ad.make_dual(leaf.detach(), like(leaf, i))
        first, args, kwargs = tree_unflatten(leaves, structure)
        results = tree_flatten(sample.output_process_fn_grad(function(first, *args, **kwargs)))[0]
        return [forward_ad.unpack_dual(r).tangent for r in results if isinstance(r, torch.Tensor)]


# --- over a batch


def vmap(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Call the function through torch.vmap.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each of a few samples, with all tensors as batches of two.
    """
    for sample in spread(samples(info, dtype)):
        yield Case(sample, partial(_batched, info.op))


def _batched(function: Callable, sample: SampleInput, device: torch.device) -> Any:
    leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    pairs = [torch.stack([leaves[i], leaves[i].flip(0) if leaves[i].dim() else leaves[i]]) for i in where]
    others = mirror_all(leaves, device)

    def one(*tensors: torch.Tensor) -> Any:
        for i, tensor in zip(where, tensors, strict=True):
            others[i] = tensor
        first, args, kwargs = tree_unflatten(others, structure)
        result = sample.output_process_fn_grad(function(first, *args, **kwargs))
        return settled(function, result, SampleInput(first, args=args, kwargs=kwargs))

    return torch.vmap(one, randomness="same")(*mirror_all(pairs, device))
