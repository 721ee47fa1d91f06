"""Samples of an OpInfo on the CPU and on the device, and how closely results must agree."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from op_table import ROW_BASES, base_name
from torch.testing import assert_close
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

# The whole suite has to run in minutes on two cores, so of each OpInfo's samples for a dtype (from 1 to several
# hundred) the tests take at most this many, evenly spread over the first MOST_SAMPLES: OpInfos group theirs by kind.
SAMPLES = 8
MOST_SAMPLES = 64
# Of those samples, this many also with non-contiguous tensors.
NONCONTIGUOUS = 3

# torch.testing's own defaults.
DEFAULT_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}


def samples(info: OpInfo, dtype: torch.dtype) -> list[SampleInput]:
    """Make the inputs of an op's tests, on the CPU.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Returns:
        Samples with contiguous and other tensors, the same in every run.
    """
    torch.manual_seed(0)
    every = list(islice(info.sample_inputs("cpu", dtype), MOST_SAMPLES))
    count = min(SAMPLES, len(every))
    chosen = [every[round(i * (len(every) - 1) / max(count - 1, 1))] for i in range(count)]
    return chosen + [sample.noncontiguous() for sample in chosen[:NONCONTIGUOUS]]


def mirror(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor with the layout that it has: strides, offset and repeated elements.

    Args:
        tensor: a tensor of the CPU.
        device: where to.

    Returns:
        A tensor of the same values at the same places of a storage as large.
    """
    tensor = tensor.detach().resolve_conj().resolve_neg()
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    storage = tensor.as_strided((elements,), (1,), 0).to(device)
    return storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def mirror_all(value: Any, device: torch.device) -> Any:
    """Copy all tensors of a nest of lists, tuples and dicts as `mirror` does.

    Args:
        value: what an op takes.
        device: where to; arguments that name the CPU name it instead.

    Returns:
        The same nest with the copies.
    """
    copied = tree_map_only(torch.Tensor, lambda tensor: mirror(tensor, device), value)
    return tree_map_only((torch.device, str), lambda name: device if str(name) == "cpu" else name, copied)


def tolerance(info: OpInfo, dtype: torch.dtype) -> dict[str, float]:
    """Say how closely a device must agree with the CPU.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Returns:
        `rtol` and `atol`: the defaults of torch.testing, or those with which PyTorch compares its own devices
        with the CPU where they are wider.
    """
    rtol, atol = DEFAULT_TOLERANCES.get(dtype, (0.0, 0.0))
    for test in ("test_compare_cpu", "test_noncontiguous_samples", "test_variant_consistency_eager", "test_out"):
        for decorator in info.get_decorators("TestCommon", test, "cuda", dtype, {}):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                own = decorator.d[dtype]
                rtol, atol = max(rtol, own.rtol), max(atol, own.atol)
    return {"rtol": rtol, "atol": atol}


def assert_same(actual: Any, expected: Any, **tolerances: float) -> None:
    """Compare results of the device with those of the CPU: structure, dtypes, shapes and values.

    Args:
        actual: what the device computed.
        expected: what the CPU computed.
        tolerances: `rtol` and `atol`.
    """
    given, wanted = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(given) == len(wanted)
    for mine, theirs in zip(given, wanted, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert mine.device.type == "opencl"
            # Of integers some ops make floating numbers, and those are rounded.
            rtol, atol = DEFAULT_TOLERANCES.get(theirs.dtype, (0.0, 0.0))
            rtol, atol = max(rtol, tolerances["rtol"]), max(atol, tolerances["atol"])
            assert_close(mine.cpu(), theirs, equal_nan=True, rtol=rtol, atol=atol)
        elif isinstance(theirs, float):
            assert mine == pytest.approx(theirs, rel=max(1e-6, tolerances["rtol"]), abs=tolerances["atol"], nan_ok=True)
        else:
            assert mine == theirs


# Ops that tell where elements stood in the order, and the position of their argument `dim`.
TIES = {"sort": 0, "topk": 1, "kthvalue": 1}


class NoFallback:
    """A context in which no op of the table may run on the CPU."""

    def __enter__(self) -> None:
        torch.opencl.reset_fallbacks()

    def __exit__(self, kind: type | None, *exception: object) -> None:
        if kind is None:
            fallen = [op for op in torch.opencl.fallbacks() if base_name(op) in ROW_BASES]
            assert not fallen, f"on the CPU in spite of their rows: {fallen}"


def call(function: Callable, sample: SampleInput, device: torch.device | None = None, **more: Any) -> Any:
    """Call an op with a sample.

    Args:
        function: the op.
        sample: its arguments, on the CPU.
        device: where to call it; the CPU if None.
        more: further arguments.

    Returns:
        What the op returns.
    """
    arguments = (sample.input, sample.args, sample.kwargs)
    if device is not None:
        arguments = mirror_all(arguments, device)
    first, args, kwargs = arguments
    # Where an op makes a tensor from nothing.
    with device or torch.device("cpu"):
        result = function(first, *args, **kwargs, **more)
    return sample.output_process_fn_grad(result)


def settle_ties(function: Callable, result: Any, sample: SampleInput) -> Any:
    """Replace places among sorted elements by what stands there: among equal elements any place will do.

    Args:
        function: the op.
        result: what it returned.
        sample: its arguments, on the CPU.

    Returns:
        The values and the elements at the places, for the ops of TIES; the result itself of others.
    """
    name = getattr(function, "__name__", "")
    if name not in TIES:
        return result
    values, places = result
    dim = sample.kwargs.get("dim", next(iter(sample.args[TIES[name] :]), -1))
    if places.dim() < sample.input.dim():
        places = places.unsqueeze(dim)
    return values, torch.take_along_dim(sample.input.to(places.device), places, dim)


def assert_as_cpu(
    actual: Any, expected: Any, function: Callable, sample: SampleInput, dtype: torch.dtype, **tolerances: float
) -> None:
    """Compare what the device made of a sample with what the CPU did.

    The CPU rounds to 16 bits after each step of some ops and of others at the end only, and not always the same in
    its scalar and vector loops. So in float16 and bfloat16 the float32 result, rounded once, is as good.

    Args:
        actual: the device's result.
        expected: the CPU's.
        function: what was called.
        sample: its arguments.
        dtype: that of the sample.
        tolerances: `rtol` and `atol`.
    """
    actual, expected = (settle_ties(function, result, sample) for result in (actual, expected))
    try:
        assert_same(actual, expected, **tolerances)
    except AssertionError:
        if dtype not in (torch.float16, torch.bfloat16):
            raise
        wide = sample.transform(
            lambda value: value.float() if isinstance(value, torch.Tensor) and value.dtype == dtype else value
        )
        precise, structure = tree_flatten(settle_ties(function, call(function, wide), wide))
        rounded = [mine.to(cpu.dtype) for mine, cpu in zip(precise, tree_flatten(expected)[0], strict=True)]
        assert_same(actual, tree_unflatten(rounded, structure), **tolerances)
