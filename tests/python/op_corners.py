"""Rare variants of an OpInfo's operator, as cases for op_checks.py: batched gradients, overlapping out=."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from op_checks import CPU, OUT_SAMPLES, Case, differentiate, gradients, like, spread, unprocessed
from op_samples import call, mirror_all, samples
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

# Implementations of the operator and of its gradient on CPU devices.
PAIRS = (("host", "kernels"), ("kernels", "host"))
# With an out= whose elements share memory, ATen's CPU functions write past its end.
CORRUPTS = {"nn.functional.avg_pool3d", "narrow_copy"}
# Arguments that name dimensions.
DIMS = {"dim", "dims", "dim0", "dim1", "dim2", "dimension", "axis", "axes", "axis0", "axis1", "start_dim", "end_dim",
        "source", "destination"}  # fmt: skip


def pairs(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Differentiate with the operator on the host and its gradient by kernels, and the reverse.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        Two calls for each of a few samples.
    """
    for sample in spread(samples(info, dtype, requires_grad=True)):
        for pair in PAIRS:
            yield Case(sample, partial(_gradients_of_pair, info.op, pair))


def _gradients_of_pair(
    function: Callable, pair: tuple[str, str], sample: SampleInput, device: torch.device
) -> list[torch.Tensor | None]:
    before = torch.backends.opencl.small_calls()
    arguments = mirror_all((sample.input, sample.args, sample.kwargs), device)
    try:
        _switch(pair[0])
        first, args, kwargs = arguments
        results = sample.output_process_fn_grad(function(first, *args, **kwargs))
        _switch(pair[1])
        return differentiate(results, _leaves(arguments), seed=1)
    finally:
        torch.backends.opencl.small_calls(before)


def _switch(mode: str) -> None:
    # The host computes only if no work is pending.
    torch.opencl.synchronize()
    torch.backends.opencl.small_calls(mode)


def _leaves(arguments: Any) -> list[torch.Tensor]:
    return [t for t in tree_flatten(arguments)[0] if isinstance(t, torch.Tensor) and t.requires_grad]


def batches_of_gradients(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Differentiate by a batch of two gradients of the results, as vectorized Jacobians do.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each of a few samples.
    """
    for sample in spread(samples(info, dtype, requires_grad=True)):
        yield Case(sample, partial(_batched_gradients, info.op))


def _batched_gradients(function: Callable, sample: SampleInput, device: torch.device) -> list[torch.Tensor | None]:
    arguments = mirror_all((sample.input, sample.args, sample.kwargs), device)
    first, args, kwargs = arguments
    results = tree_flatten(sample.output_process_fn_grad(function(first, *args, **kwargs)))[0]
    results = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = _leaves(arguments)
    if not results or not leaves:
        return []
    weights = [torch.stack([like(result, 2 * i), like(result, 2 * i + 1)]) for i, result in enumerate(results)]
    return list(torch.autograd.grad(results, leaves, weights, allow_unused=True, is_grads_batched=True))


def vmap_of_gradients(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Differentiate within torch.vmap.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each of a few samples, with the tensors to differentiate by as batches of two.
    """
    for sample in spread(samples(info, dtype, requires_grad=True)):
        yield Case(sample, partial(_mapped_gradients, info.op))


def _mapped_gradients(function: Callable, sample: SampleInput, device: torch.device) -> Any:
    leaves, structure = tree_flatten(mirror_all((sample.input, sample.args, sample.kwargs), device))
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not where:
        return []

    def results_of(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        others = list(leaves)
        for i, tensor in zip(where, tensors, strict=True):
            others[i] = tensor
        first, args, kwargs = tree_unflatten(others, structure)
        results = tree_flatten(sample.output_process_fn_grad(function(first, *args, **kwargs)))[0]
        return tuple(r for r in results if isinstance(r, torch.Tensor) and (r.is_floating_point() or r.is_complex()))

    def gradients_of(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results, pullback = torch.func.vjp(results_of, *tensors)
        return pullback(tuple(torch.ones_like(result) for result in results))

    batches = [torch.stack([leaves[i].detach(), leaves[i].detach() * 0.5]) for i in where]
    return torch.vmap(gradients_of, randomness="same")(*batches)


def overlapping_out(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Call the function with an out= that shares memory: partly with the input, or between its own elements.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each of the first samples and overlaps that the CPU refuses; the result is the exception's name.
    """
    if info.full_name in CORRUPTS:
        return
    for sample in samples(info, dtype)[:OUT_SAMPLES]:
        result = call(info.op, unprocessed(sample))
        if not isinstance(result, torch.Tensor) or result.numel() < 2 or result.layout != torch.strided:
            continue
        for make in (_of_one_element, _from_the_second_element):
            compute = partial(_outcome, info.op, make, result)
            if compute(sample, CPU) == "RuntimeError":
                yield Case(sample, compute)


def _of_one_element(sample: SampleInput, result: torch.Tensor, device: torch.device) -> SampleInput:
    """Give a sample an out= whose elements all share one memory location."""
    first, args, kwargs = mirror_all((sample.input, sample.args, sample.kwargs), device)
    out = torch.zeros(1, dtype=result.dtype, device=device).expand(result.shape)
    return SampleInput(first, args=args, kwargs=kwargs | {"out": out})


def _from_the_second_element(sample: SampleInput, result: torch.Tensor, device: torch.device) -> SampleInput:
    """Give a sample an out= that begins at the second element of its input."""
    first, args, kwargs = mirror_all((sample.input, sample.args, sample.kwargs), device)
    memory = torch.zeros(first.numel() + result.numel() + 1, dtype=result.dtype, device=device)
    out = memory[1 : 1 + result.numel()].view(result.shape)
    shared = memory[: first.numel()].view(first.shape)
    return SampleInput(shared.copy_(first), args=args, kwargs=kwargs | {"out": out})


def _outcome(
    function: Callable, make: Callable, result: torch.Tensor, sample: SampleInput, device: torch.device
) -> str:
    if not isinstance(sample.input, torch.Tensor) or sample.input.numel() < 2 or sample.input.dtype != result.dtype:
        return "not possible"
    changed = make(sample, result, device)
    try:
        function(changed.input, *changed.args, **changed.kwargs)
    except Exception as error:
        return type(error).__name__
    return "no exception"


def negative_dims(info: OpInfo, dtype: torch.dtype) -> Iterator[Case]:
    """Differentiate calls with negative dimensions.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Yields:
        A call for each of the first samples that pass a dimension.
    """
    places = _places_of_dims(info)
    found = 0
    for sample in samples(info, dtype, requires_grad=True):
        if not isinstance(sample.input, torch.Tensor) or found == OUT_SAMPLES:
            continue
        count = max(sample.input.dim(), 1)
        args = tuple(_negated(arg, count) if i in places else arg for i, arg in enumerate(sample.args))
        kwargs = {name: _negated(arg, count) if name in DIMS else arg for name, arg in sample.kwargs.items()}
        if repr((args, kwargs)) == repr((sample.args, sample.kwargs)):
            continue
        changed = SampleInput(
            sample.input, args=args, kwargs=kwargs, output_process_fn_grad=sample.output_process_fn_grad
        )
        found += 1
        yield Case(changed, partial(gradients, info.op))


def _places_of_dims(info: OpInfo) -> set[int]:
    """Find positional arguments that are dimensions, in ATen's schemas of the operator; self is not counted."""
    packet = getattr(torch.ops.aten, (info.aten_name or info.name).rpartition(".")[2], None)
    # `dims` of tile are repeat counts.
    if packet is None or info.name == "tile":
        return set()
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    return {i for schema in schemas for i, arg in enumerate(schema.arguments[1:]) if arg.name in DIMS}


def _negated(value: Any, count: int) -> Any:
    def one(number: Any) -> Any:
        return number - count if type(number) is int and 0 <= number < count else number

    return tree_map(one, value)
