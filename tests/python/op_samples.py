"""Samples of an OpInfo on the CPU and on the device, and how closely results must agree."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from float64 import has_fp64
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

# Where rounding to a dtype leaves a doubt, the dtype that settles it.
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}

# How many times as far off as the CPU's results those of the device may be. The CPU's libraries have 16 and more sums
# of a part of the terms each, where a kernel may have one of all, whose error is four times as large.
MOST_ERRORS = 4

# Dtypes that replace others where the device does not compute in float64.
SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}

# Ops that compute in float64 where a device has it, as float32 loses digits: relative and absolute tolerance elsewhere.
LESS_WITHOUT_FP64 = {"pow": (1e-5, 1e-5), "__rpow__": (1e-5, 1e-5)}
# Ops that make float64 of other dtypes, by the argument that asks for it.
MAKES_DOUBLE = {"bincount": "weights"}

# Ops whose results or gradients are small differences of large sums: relative and absolute tolerance.
CANCELLING = {
    "grid_sampler_2d": (1e-5, 1e-4),
    "grid_sampler_3d": (1e-5, 1e-4),
}
# The same, but not in float64 and complex128.
CANCELLING_IN_SINGLE = {
    **{
        f"fft.{kind}{dims}": (1e-5, 1e-4)
        for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for dims in ("", "2", "n")
    },
    "stft": (1e-5, 1e-4),
    "istft": (1e-5, 1e-4),
    # Of logarithms of some hundreds, by the CPU too.
    "nn.functional.ctc_loss": (1e-4, 1e-4),
    "linalg.householder_product": (1e-4, 1e-4),
    # Elements near 1 beside some of 93014, where the CPU's own error is 0.05.
    "matrix_exp": (1e-5, 2e-3),
    # Its gradient is the exponential of a difference of squares, by the CPU too.
    "special.log_ndtr": (1e-5, 1e-4),
}

# Ops of which PyTorch's own float64 is as far off: Bessel functions from 5 on, and Airy's at -2.09.
INEXACT_ON_CPU = {
    **{f"special.bessel_{name}": (0.0, 1e-6) for name in ("j0", "j1", "y0", "y1")},
    "special.airy_ai": (0.0, 4e-6),
}

# Ops that return statistics of 16-bit tensors in float32 on every device but the CPU.
FLOAT32_STATISTICS = {
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
}


def samples(info: OpInfo, dtype: torch.dtype, requires_grad: bool = False) -> list[SampleInput]:
    """Make the inputs of an op's tests, on the CPU.

    Args:
        info: the op.
        dtype: its inputs' dtype.
        requires_grad: whether to ask for gradients of what has some.

    Returns:
        Samples with contiguous and other tensors, the same in every run.
    """
    torch.manual_seed(0)
    every = list(islice(info.sample_inputs("cpu", dtype, requires_grad), MOST_SAMPLES))
    if not has_fp64():
        every = [in_single(sample) for sample in every if sample.kwargs.get(MAKES_DOUBLE.get(info.name)) is None]
    # Where PyTorch has another accelerator too, those of `to` ask for it.
    every = [sample for sample in every if not any(map(is_elsewhere, (*sample.args, *sample.kwargs.values())))]
    count = min(SAMPLES, len(every))
    if info.name in ("polygamma", "special.polygamma") and dtype in (torch.int8, torch.int16):
        # Among these are poles, 0 and the negative integers, where the CPU has what rounding leaves of a pole.
        every = [SampleInput(each.input.abs() + 1, args=each.args, kwargs=each.kwargs) for each in every]
    chosen = [every[round(i * (len(every) - 1) / max(count - 1, 1))] for i in range(count)]
    return chosen + [sample for sample in map(SampleInput.noncontiguous, chosen[:NONCONTIGUOUS]) if works(info, sample)]


def is_elsewhere(argument: Any) -> bool:
    """Return true if an argument is a device of one of PyTorch's own backends for accelerators, or its name."""
    return isinstance(argument, str | torch.device) and str(argument).partition(":")[0] in ("cuda", "xpu", "mps")


def in_single(sample: SampleInput) -> SampleInput:
    """Replace float64 and complex128, of tensors and as arguments, for devices that do not compute in them.

    Args:
        sample: arguments of an op.

    Returns:
        The same in float32 and complex64.
    """

    def narrow(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            single = SINGLE.get(value.dtype)
            return value if single is None else value.detach().to(single).requires_grad_(value.requires_grad)
        return SINGLE.get(value, value) if isinstance(value, torch.dtype) else value

    return sample.transform(narrow)


def works(info: OpInfo, sample: SampleInput) -> bool:
    """Return true if the CPU takes a sample: some ops refuse strides, as view_as_complex does.

    Args:
        info: the op.
        sample: its arguments.

    Returns:
        True if it raises nothing.
    """
    try:
        info.op(sample.input, *sample.args, **sample.kwargs)
    except RuntimeError:
        return False
    return True


def mirror(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a tensor with the layout that it has: strides, offset and repeated elements.

    Args:
        tensor: a tensor of the CPU.
        device: where to.

    Returns:
        A tensor of the same values at the same places of a storage as large; of a sparse one just a copy.
    """
    if tensor.layout != torch.strided:
        return tensor.detach().to(device, copy=True).requires_grad_(tensor.requires_grad)
    plain = tensor.detach().resolve_conj().resolve_neg()
    elements = plain.untyped_storage().nbytes() // plain.element_size()
    storage = plain.as_strided((elements,), (1,), 0).to(device, copy=True)
    copied = storage.as_strided(plain.shape, plain.stride(), plain.storage_offset())
    return copied.requires_grad_(tensor.requires_grad)


def mirror_all(value: Any, device: torch.device) -> Any:
    """Copy all tensors of a nest of lists, tuples and dicts as `mirror` does.

    Args:
        value: arguments of an op.
        device: where to; arguments that name the CPU name it instead.

    Returns:
        The same nest with the copies.
    """
    copied = tree_map_only(torch.Tensor, lambda tensor: mirror(tensor, device), value)
    return tree_map_only((torch.device, str), lambda name: device if str(name) == "cpu" else name, copied)


def tolerance(info: OpInfo, dtype: torch.dtype) -> dict[str, Any]:
    """Say how closely a device must agree with the CPU.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Returns:
        Arguments of `assert_same`: the defaults of torch.testing, or the tolerances with which PyTorch compares
        its own devices with the CPU where they are wider.
    """
    rtol, atol = DEFAULT_TOLERANCES.get(dtype, (0.0, 0.0))
    for test in ("test_compare_cpu", "test_noncontiguous_samples", "test_variant_consistency_eager", "test_out"):
        for decorator in info.get_decorators("TestCommon", test, "cuda", dtype, {}):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                own = decorator.d[dtype]
                rtol, atol = max(rtol, own.rtol), max(atol, own.atol)
    wider = (CANCELLING | INEXACT_ON_CPU).get(info.name, (0, 0))
    if dtype not in SINGLE:
        wider = CANCELLING_IN_SINGLE.get(info.name, wider)
    if not has_fp64() and dtype.is_complex:
        wider = LESS_WITHOUT_FP64.get(info.name, wider)
    rtol, atol = (max(own, other) for own, other in zip((rtol, atol), wider, strict=True))
    return {"rtol": rtol, "atol": atol, "check_dtype": info.name not in FLOAT32_STATISTICS}


def assert_same(actual: Any, expected: Any, rtol: float = 0, atol: float = 0, check_dtype: bool = True) -> None:
    """Compare results of the device with those of the CPU: structure, dtypes, shapes and values.

    Args:
        actual: what the device computed.
        expected: what the CPU computed.
        rtol: relative tolerance, and for floating results that of their dtype at least.
        atol: absolute tolerance, likewise.
        check_dtype: whether dtypes must be the same.
    """
    given, wanted = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(given) == len(wanted), f"{len(given)} results instead of {len(wanted)}"
    for mine, theirs in zip(given, wanted, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert isinstance(mine, torch.Tensor), f"{mine!r} instead of a tensor"
            assert mine.device.type == "opencl", f"a tensor of {mine.device}"
            own_rtol, own_atol = DEFAULT_TOLERANCES.get(theirs.dtype, (0.0, 0.0))
            limits = {"rtol": max(rtol, own_rtol), "atol": max(atol, own_atol)}
            assert_close(mine.cpu(), theirs, equal_nan=True, check_dtype=check_dtype, **limits)
        elif isinstance(theirs, float):
            assert mine == pytest.approx(theirs, rel=max(rtol, 1e-6), abs=atol, nan_ok=True)
        else:
            assert mine == theirs, f"{mine!r} instead of {theirs!r}"


def assert_near_exact(actual: Any, rounded: Any, exact: Any) -> None:
    """Compare results of the device with those of the CPU, and where these differ with those of a wider dtype.

    From the latter the device may be a few times as far off as the CPU: sums of many numbers depend on their order, and
    differ by more than torch.testing's defaults where they cancel.

    Args:
        actual: what the device computed.
        rounded: what the CPU computed in the same dtype.
        exact: what the CPU computed in a wider dtype.
    """
    leaves = [tree_flatten(nest)[0] for nest in (actual, rounded, exact)]
    for mine, theirs, wanted in zip(*leaves, strict=True):
        try:
            assert_same(mine, theirs)
        except AssertionError:
            rtol, atol = DEFAULT_TOLERANCES[theirs.dtype]
            # Beside that of the last rounding, to the dtype.
            errors = (theirs.to(wanted.dtype) - wanted).abs() - torch.finfo(theirs.dtype).eps / 2 * wanted.abs()
            assert errors.isfinite().all(), "the CPU's own result is not finite where the exact one is"
            atol = max(atol, MOST_ERRORS * errors.max().item())
            assert_close(mine.cpu().to(wanted.dtype), wanted, rtol=rtol, atol=atol)


# Ops that tell where elements stood in the order, and the position of their argument `dim`.
TIES = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0, "mode": 0}


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
        The result.
    """
    arguments = (sample.input, sample.args, sample.kwargs)
    if device is not None:
        arguments = mirror_all(arguments, device)
    first, args, kwargs = arguments
    # Where an op makes a tensor from nothing.
    with device or torch.device("cpu"):
        result = function(first, *args, **kwargs, **more)
    return sample.output_process_fn_grad(result)


def settled(function: Callable, result: Any, sample: SampleInput) -> Any:
    """Replace places among sorted elements by what stands there, as among equal elements any place will do.

    Eigenvectors, of which each may change its sign, become their absolute values.

    Args:
        function: the op.
        result: what it returned.
        sample: its arguments, on the CPU.

    Returns:
        The values and the elements at the places, for the ops of TIES, and the places where sorting is stable; the
        result itself of others.
    """
    name = getattr(function, "__name__", "")
    if name == "linalg_eigh":
        return result[0], result[1].abs()
    is_stable = sample.kwargs.get("stable", False)
    if name not in TIES or sample.input.dim() == 0 or (isinstance(result, torch.Tensor) and name != "argsort"):
        return result
    values, places = ([], result) if name == "argsort" else ([result[0]], result[1])
    dim = sample.kwargs.get("dim", next(iter(sample.args[TIES[name] :]), -1))
    if places.dim() < sample.input.dim():
        places = places.unsqueeze(dim)
    elements = torch.take_along_dim(sample.input.to(places.device), places, dim)
    return [*values, elements, *([places] if is_stable else [])]


def assert_as_cpu(
    actual: Any, compute: Callable[[SampleInput], Any], sample: SampleInput, dtype: torch.dtype, **tolerances: Any
) -> None:
    """Compare what the device made of a sample with what the CPU makes of it, or of the same numbers in a wider dtype.

    The CPU's own result is only rounded, too: in 16 bits after each step of some ops and at the end of others, and
    not always the same in its scalar and vector loops. So where the two differ, the wider dtype has the last word.

    Args:
        actual: the device's result.
        compute: makes the CPU's.
        sample: the arguments.
        dtype: that of the sample.
        tolerances: for `assert_same`.
    """
    expected = compute(sample)
    try:
        assert_same(actual, expected, **tolerances)
    except AssertionError:
        if dtype not in WIDER:
            raise
        leaves, structure = tree_flatten(compute(widened(sample, dtype)))
        rounded = [
            wide.to(own.dtype) if isinstance(own, torch.Tensor) else wide
            for wide, own in zip(leaves, tree_flatten(expected)[0], strict=True)
        ]
        assert_same(actual, tree_unflatten(rounded, structure), **tolerances)


def widened(sample: SampleInput, dtype: torch.dtype) -> SampleInput:
    """Convert the tensors of one dtype to that of WIDER.

    Args:
        sample: arguments of an op.
        dtype: which tensors to convert.

    Returns:
        The same numbers.
    """

    def widen(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.dtype == dtype):
            return value
        return value.detach().to(WIDER[dtype]).requires_grad_(value.requires_grad)

    return sample.transform(widen)
