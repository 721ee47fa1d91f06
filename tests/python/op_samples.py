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

# The whole suite has to run in minutes on two cores. So the tests take at most this many of each OpInfo's samples for a
# dtype (1 to several hundred), evenly spread over the first MOST_SAMPLES: OpInfos group their samples by kind.
SAMPLES = 8
MOST_SAMPLES = 64
# This many of those samples are also tested with non-contiguous tensors.
NONCONTIGUOUS = 3

# The defaults of torch.testing.
DEFAULT_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}

# The dtype that decides when two results differ by the rounding of a dtype.
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}

# The device's errors may be this many times the CPU's. The CPU's libraries split a sum into 16 or more partial sums,
# whereas a kernel may use a single one, whose error is four times as large.
MOST_ERRORS = 4

# Replacements of dtypes on devices without float64.
SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}

# Ops that compute in float64 if a device has it, as float32 loses digits: relative and absolute tolerance elsewhere.
LESS_WITHOUT_FP64 = {"pow": (1e-5, 1e-5), "__rpow__": (1e-5, 1e-5)}
# Ops that convert other dtypes to float64, by the argument that causes it.
MAKES_DOUBLE = {"bincount": "weights"}

# Ops whose results or gradients are small differences of large sums: relative and absolute tolerance.
CANCELLING = {
    "grid_sampler_2d": (1e-5, 1e-4),
    "grid_sampler_3d": (1e-5, 1e-4),
}
# As CANCELLING, but not in float64 and complex128.
CANCELLING_IN_SINGLE = {
    **{
        f"fft.{kind}{dims}": (1e-5, 1e-4)
        for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
        for dims in ("", "2", "n")
    },
    "stft": (1e-5, 1e-4),
    "istft": (1e-5, 1e-4),
    # The logarithms are some hundreds, and the CPU has the same error.
    "nn.functional.ctc_loss": (1e-4, 1e-4),
    "linalg.householder_product": (1e-4, 1e-4),
    # Elements near 1 in matrices with elements of 93014, for which the CPU's own error is 0.05.
    "matrix_exp": (1e-5, 2e-3),
    # The gradient is the exponential of a difference of squares, on the CPU too.
    "special.log_ndtr": (1e-5, 1e-4),
}

# Ops for which PyTorch's own float64 results have such errors: Bessel functions from 5 on, and Airy's at -2.09.
INEXACT_ON_CPU = {
    **{f"special.bessel_{name}": (0.0, 1e-6) for name in ("j0", "j1", "y0", "y1")},
    "special.airy_ai": (0.0, 4e-6),
}

# Ops that return statistics of 16-bit tensors in float32 on every device except the CPU.
FLOAT32_STATISTICS = {
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
}


def samples(info: OpInfo, dtype: torch.dtype, requires_grad: bool = False) -> list[SampleInput]:
    """Make the inputs for an op's tests, on the CPU.

    Args:
        info: the op.
        dtype: its inputs' dtype.
        requires_grad: whether differentiable inputs require gradients.

    Returns:
        Samples with contiguous and non-contiguous tensors, equal in every run.
    """
    torch.manual_seed(0)
    every = list(islice(info.sample_inputs("cpu", dtype, requires_grad), MOST_SAMPLES))
    if not has_fp64():
        every = [in_single(sample) for sample in every if sample.kwargs.get(MAKES_DOUBLE.get(info.name)) is None]
    # If PyTorch has another accelerator, some samples of `to` use it.
    every = [sample for sample in every if not any(map(is_elsewhere, (*sample.args, *sample.kwargs.values())))]
    count = min(SAMPLES, len(every))
    if info.name in ("polygamma", "special.polygamma") and dtype in (torch.int8, torch.int16):
        # The samples include poles, 0 and the negative integers, where the CPU's result is rounding error at a pole.
        every = [SampleInput(each.input.abs() + 1, args=each.args, kwargs=each.kwargs) for each in every]
    chosen = [every[round(i * (len(every) - 1) / max(count - 1, 1))] for i in range(count)]
    return chosen + [sample for sample in map(SampleInput.noncontiguous, chosen[:NONCONTIGUOUS]) if works(info, sample)]


def is_elsewhere(argument: Any) -> bool:
    """Return true if an argument is one of PyTorch's own accelerator devices, or its name."""
    return isinstance(argument, str | torch.device) and str(argument).partition(":")[0] in ("cuda", "xpu", "mps")


def in_single(sample: SampleInput) -> SampleInput:
    """Replace float64 and complex128, in tensors and arguments, for devices that do not support them.

    Args:
        sample: the arguments of an op.

    Returns:
        The sample in float32 and complex64.
    """

    def narrow(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            single = SINGLE.get(value.dtype)
            return value if single is None else value.detach().to(single).requires_grad_(value.requires_grad)
        return SINGLE.get(value, value) if isinstance(value, torch.dtype) else value

    return sample.transform(narrow)


def works(info: OpInfo, sample: SampleInput) -> bool:
    """Return true if the CPU accepts a sample: some ops refuse strides, as view_as_complex does.

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
    """Copy a tensor with its layout: strides, offset and repeated elements.

    Args:
        tensor: a CPU tensor.
        device: the device of the copy.

    Returns:
        A tensor with the same values at the same offsets of a storage of the same size; a plain copy of a sparse
        tensor.
    """
    if tensor.layout != torch.strided:
        return tensor.detach().to(device, copy=True).requires_grad_(tensor.requires_grad)
    plain = tensor.detach().resolve_conj().resolve_neg()
    elements = plain.untyped_storage().nbytes() // plain.element_size()
    storage = plain.as_strided((elements,), (1,), 0).to(device, copy=True)
    copied = storage.as_strided(plain.shape, plain.stride(), plain.storage_offset())
    return copied.requires_grad_(tensor.requires_grad)


def mirror_all(value: Any, device: torch.device) -> Any:
    """Copy all tensors in nested lists, tuples and dicts with `mirror`.

    Args:
        value: the arguments of an op.
        device: the device of the copies; it also replaces arguments that are the CPU device.

    Returns:
        The same structure with the copies.
    """
    copied = tree_map_only(torch.Tensor, lambda tensor: mirror(tensor, device), value)
    return tree_map_only((torch.device, str), lambda name: device if str(name) == "cpu" else name, copied)


def tolerance(info: OpInfo, dtype: torch.dtype) -> dict[str, Any]:
    """Choose how closely the device must agree with the CPU.

    Args:
        info: the op.
        dtype: its inputs' dtype.

    Returns:
        Arguments of `assert_same`: the defaults of torch.testing, or PyTorch's own tolerances for comparing its devices
        with the CPU if they are wider.
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
    """Compare results of the device with the CPU's: structure, dtypes, shapes and values.

    Args:
        actual: the device's result.
        expected: the CPU's result.
        rtol: relative tolerance; for floating-point results at least the default of their dtype.
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
    """Compare results of the device with the CPU's, and if they differ, with the CPU's results in a wider dtype.

    From the latter the device may be a few times as far off as the CPU: sums of many values depend on their order, and
    differ by more than torch.testing's defaults if they cancel.

    Args:
        actual: the device's result.
        rounded: the CPU's result in the same dtype.
        exact: the CPU's result in a wider dtype.
    """
    leaves = [tree_flatten(nest)[0] for nest in (actual, rounded, exact)]
    for mine, theirs, wanted in zip(*leaves, strict=True):
        try:
            assert_same(mine, theirs)
        except AssertionError:
            rtol, atol = DEFAULT_TOLERANCES[theirs.dtype]
            # The CPU's error before the last rounding to the dtype.
            errors = (theirs.to(wanted.dtype) - wanted).abs() - torch.finfo(theirs.dtype).eps / 2 * wanted.abs()
            assert errors.isfinite().all(), "the CPU's own result is not finite although the exact one is"
            atol = max(atol, MOST_ERRORS * errors.max().item())
            assert_close(mine.cpu().to(wanted.dtype), wanted, rtol=rtol, atol=atol)


# Ops that return indices of sorted elements, and the position of their argument `dim`.
TIES = {"sort": 0, "argsort": 0, "topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0, "mode": 0}


class NoFallback:
    """A context in which no op of the table may fall back to the CPU."""

    def __enter__(self) -> None:
        torch.opencl.reset_fallbacks()

    def __exit__(self, kind: type | None, *exception: object) -> None:
        if kind is None:
            fallen = [op for op in torch.opencl.fallbacks() if base_name(op) in ROW_BASES]
            assert not fallen, f"fell back to the CPU despite having a row: {fallen}"


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
    # Ops that create tensors use this default device.
    with device or torch.device("cpu"):
        result = function(first, *args, **kwargs, **more)
    return sample.output_process_fn_grad(result)


def settled(function: Callable, result: Any, sample: SampleInput) -> Any:
    """Replace indices of sorted elements by the elements, because among equal elements any index is valid.

    Eigenvectors become their absolute values, because their signs are arbitrary.

    Args:
        function: the op.
        result: its result.
        sample: its arguments, on the CPU.

    Returns:
        The values and the indexed elements for the ops of TIES, and the indices if sorting is stable; for other ops the
        result itself.
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
    """Compare the device's result for a sample with the CPU's, or with the CPU's in a wider dtype.

    The CPU's own result is also rounded: in 16 bits after each step of some ops and at the end of others, and not
    always equally in its scalar and vector loops. So if the two differ, the wider dtype decides.

    Args:
        actual: the device's result.
        compute: computes the CPU's result.
        sample: the arguments.
        dtype: the dtype of the sample.
        tolerances: arguments of `assert_same`.
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
    """Convert the tensors of one dtype to its dtype in WIDER.

    Args:
        sample: the arguments of an op.
        dtype: the dtype of the tensors to convert.

    Returns:
        The same values.
    """

    def widen(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.dtype == dtype):
            return value
        return value.detach().to(WIDER[dtype]).requires_grad_(value.requires_grad)

    return sample.transform(widen)
