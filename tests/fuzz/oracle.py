"""Runs a case on both devices, and judges the device's result."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from op_samples import DEFAULT_TOLERANCES, FLOAT32_STATISTICS
from torch.utils._pytree import tree_flatten, tree_map

from fuzz.allowed import allowed_error, any_place_will_do, hidden
from fuzz.case import Case, Operand
from fuzz.pointwise import BINARY, TERNARY, UNARY, named

# The dtype to convert a case to, for a result that decides between the two.
WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
# From this product of the operands' greatest elements, rounding errors are too large to compare results.
GREAT = 1e6
# The device's error may be this many times the CPU's own.
SLACK = 4.0

POINTWISE = {named(info) for info in (*UNARY, *BINARY)} | set(TERNARY)


@dataclass(frozen=True)
class Finding:
    """A difference from the CPU.

    Attributes:
        kind: `value`, `dtype`, `shape`, `error`, `crash` or `hang`, with the names of the exceptions.
        text: a sentence.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call: an exception, or tensors and other values on the CPU."""

    error: Exception | None
    leaves: list[Any]


def run(case: Case, device: str, wide: bool = False) -> Outcome:
    """Run a case.

    Args:
        case: the call.
        device: where to run it.
        wide: whether to convert operands and `dtype=` to float64 and complex128 first.

    Returns:
        Results, gradients, and the operands afterwards.
    """
    made: dict[int, torch.Tensor] = {}

    def place(leaf: Any) -> Any:
        if isinstance(leaf, Operand):
            made[id(leaf)] = leaf.on(device, WIDE.get(leaf.tensor.dtype) if wide else None)
            return made[id(leaf)]
        if isinstance(leaf, torch.dtype) and wide:
            return WIDE.get(leaf, leaf)
        return device if isinstance(leaf, torch.device) or leaf == "cpu" else leaf

    torch.manual_seed(0)
    before = torch.get_default_dtype()
    try:
        args, kwargs = tree_map(place, (case.args, case.kwargs))
        torch.set_default_dtype(torch.float64 if wide else before)
        with warnings.catch_warnings(), torch.device(device):
            warnings.simplefilter("ignore")
            results = tree_flatten(case.function(*args, **kwargs))[0]
            leaves = results + (gradients(results, made, case) if case.gradients else [])
            leaves = [fetched(leaf) for leaf in leaves + [made[id(operand)] for operand in case.operands]]
    except Exception as error:
        forget_faults(device)
        return Outcome(error, [])
    finally:
        torch.set_default_dtype(before)
    return Outcome(None, leaves)


def forget_faults(device: str) -> None:
    """Wait for a device, so that an error of one case is not raised in the next.

    Args:
        device: its name.
    """
    if device != "cpu":
        try:
            torch.opencl.synchronize()
        except Exception:
            return


def gradients(results: list[Any], made: dict[int, torch.Tensor], case: Case) -> list[torch.Tensor | None]:
    """Differentiate a weighted sum of results.

    Args:
        results: the results of the call.
        made: the tensors by the `id` of their operands.
        case: the call.

    Returns:
        The gradients of the operands that require one.
    """
    results = [result for result in results if isinstance(result, torch.Tensor) and result.requires_grad]
    inputs = [made[id(operand)] for operand in case.operands if operand.requires_grad]
    if not results or not inputs:
        return []
    # As in WEIGHTS of fuzz.case: the same values in every dtype.
    weights = [torch.linspace(0.5, 1.75, r.numel(), dtype=torch.float32, device="cpu").view(r.shape) for r in results]
    weights = [weight.to(result.device, result.dtype) for weight, result in zip(weights, results, strict=True)]
    return list(torch.autograd.grad(results, inputs, weights, allow_unused=True))


def fetched(leaf: Any) -> Any:
    """Copy a result to the CPU.

    Args:
        leaf: a result.

    Returns:
        A CPU tensor, or the value itself.
    """
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
        return leaf
    return leaf.detach().resolve_conj().resolve_neg().cpu()


def judge(case: Case, enter: Callable[[str], None] = lambda device: None) -> Finding | None:
    """Compare the devices.

    Args:
        case: the call.
        enter: called with the name of the device that runs the case next, so that a crash is attributed to it.

    Returns:
        What is wrong, or None.
    """
    enter("cpu")
    theirs = run(case, "cpu")
    enter("opencl")
    ours = run(case, "opencl")
    if ours.error or theirs.error:
        return judge_errors(case, ours.error, theirs.error)
    if len(ours.leaves) != len(theirs.leaves):
        return Finding("shape", f"{len(ours.leaves)} results instead of {len(theirs.leaves)}")
    wide: list[Any] | None = None
    for number, (mine, their) in enumerate(zip(ours.leaves, theirs.leaves, strict=True)):
        found = judge_form(mine, their)
        if found is not None and found.kind == "dtype" and case.function.__name__ in FLOAT32_STATISTICS:
            continue
        if found is None and isinstance(their, torch.Tensor) and not any_place_will_do(case, their, number):
            if same(mine, their):
                continue
            if wide is None:
                enter("cpu")
                settled = run(case, "cpu", wide=True)
                wide = settled.leaves if len(settled.leaves) == len(theirs.leaves) else list(theirs.leaves)
            found = judge_values(case, mine, their, wide[number])
        if found is not None:
            if not repeats(case, theirs):
                return None
            return Finding(found.kind, f"result {number}: {found.text}")
    return None


def repeats(case: Case, theirs: Outcome) -> bool:
    """Tell whether the CPU's result repeats: uninitialised memory and random values do not.

    Args:
        case: the call.
        theirs: its first outcome.

    Returns:
        True if another call on the CPU, after other work there, gives the same bits.
    """
    junk = [torch.full((2**power,), 77, dtype=torch.uint8) for power in range(4, 16)]
    del junk
    torch.manual_seed(1)
    again = run(case, "cpu")
    pairs = zip(again.leaves, theirs.leaves, strict=False)
    return all(same(a, b) if isinstance(b, torch.Tensor) else repr(a) == repr(b) for a, b in pairs)


def judge_errors(case: Case, ours: Exception | None, theirs: Exception | None) -> Finding | None:
    """Compare exceptions.

    Args:
        case: the call.
        ours: the device's.
        theirs: the CPU's.

    Returns:
        A finding, unless both have one type or fuzz.allowed accepts the difference.
    """
    names = [type(error).__name__ if error else "nothing" for error in (ours, theirs)]
    if names[0] == names[1] or allowed_error(case, ours, theirs):
        return None
    texts = [f"{name} ({str(error).splitlines()[0][:150] if str(error) else ''})" if error else name
             for name, error in zip(names, (ours, theirs), strict=True)]  # fmt: skip
    return Finding(f"error {names[0]}/{names[1]}", f"raises {texts[0]}, the CPU {texts[1]}")


def judge_form(mine: Any, their: Any) -> Finding | None:
    """Compare everything except values of tensors.

    Args:
        mine: a result of the device.
        their: the CPU's result.

    Returns:
        What is wrong with the type, dtype or shape, or with a Python value.
    """
    if isinstance(mine, torch.Tensor) != isinstance(their, torch.Tensor):
        return Finding("shape", f"{type(mine).__name__} instead of {type(their).__name__}")
    if not isinstance(their, torch.Tensor):
        if isinstance(their, float) and isinstance(mine, float):
            equal = math.isclose(mine, their, rel_tol=1e-5, abs_tol=1e-6) or repr(mine) == repr(their)
            return None if equal else Finding("value", f"{mine!r} instead of {their!r}")
        if isinstance(their, torch.device) or mine == their or repr(mine) == repr(their):
            return None
        return None if "opencl" in repr(mine) else Finding("value", f"{mine!r} instead of {their!r}")
    if mine.dtype != their.dtype:
        return Finding("dtype", f"{mine.dtype} instead of {their.dtype}")
    if mine.shape != their.shape:
        return Finding("shape", f"shape {tuple(mine.shape)} instead of {tuple(their.shape)}")
    return None


def same(mine: torch.Tensor, their: torch.Tensor) -> bool:
    """Compare exactly; NaN equals NaN.

    Args:
        mine: a tensor.
        their: one of the same shape and dtype.

    Returns:
        Whether they are equal.
    """
    if mine.layout != torch.strided or mine.is_quantized:
        return True
    if not (mine.dtype.is_floating_point or mine.dtype.is_complex):
        return torch.equal(mine, their)
    mine, their = widest(mine), widest(their)
    return bool(((mine == their) | (unfinished(mine) & unfinished(their))).all())


def widest(tensor: torch.Tensor) -> torch.Tensor:
    """Convert to the widest dtype of a kind.

    Args:
        tensor: the values.

    Returns:
        The values in float64, or complex128.
    """
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)


def unfinished(tensor: torch.Tensor) -> torch.Tensor:
    """Find NaN; in a complex tensor, all non-finite elements: it is unspecified which part is infinite or NaN.

    Args:
        tensor: the values.

    Returns:
        A mask of them.
    """
    return ~tensor.isfinite() if tensor.dtype.is_complex else tensor.isnan()


def judge_values(case: Case, mine: torch.Tensor, their: torch.Tensor, wide: Any) -> Finding | None:
    """Compare values.

    Args:
        case: the call.
        mine: a result of the device.
        their: the CPU's result, of the same dtype and shape.
        wide: the CPU's result in float64.

    Returns:
        What is wrong with the worst element.
    """
    if (
        not isinstance(wide, torch.Tensor)
        or wide.shape != their.shape
        or wide.dtype.is_complex != their.dtype.is_complex
    ):
        wide = their
    if their.dtype.is_floating_point or their.dtype.is_complex:
        a, b, c = widest(mine), widest(their), widest(wide)
        rounded = widest(wide.to(their.dtype))
        good = near(a, b, b, their.dtype) | near(a, rounded, c, their.dtype)
        good |= (a - c).abs() <= allowance(b, c, their.dtype) + magnitude(case, their.dtype)
        # If the CPU's result and the float64 result differ in being finite, neither is a reference: values are so great
        # that the CPU's steps overflow, and the steps in float64 cancel.
        good |= b.isfinite() != rounded.isfinite()
        bad = ~good & ~hidden(case, a, b)
    else:
        bad = mine != their
        if not wide.dtype.is_complex:
            bad &= mine != wide.to(their.dtype)
        a, b, c = mine, their, wide
    if not bad.any():
        return None
    place = tuple(int(i) for i in bad.nonzero()[0])
    share = f"{int(bad.sum())} of {bad.numel()} elements wrong"
    detail = f"{a[place].item()!r} at {list(place)}, the CPU {b[place].item()!r}, in float64 {c[place].item()!r}"
    none = unfinished(a) != unfinished(b) if a.is_floating_point() or a.is_complex() else bad & False
    return Finding("value nan" if (none & bad).any() else "value", f"{share}: {detail}")


def near(a: torch.Tensor, b: torch.Tensor, size: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Compare within the tolerance of a dtype.

    Args:
        a: values.
        b: other values.
        size: what the tolerance is relative to.
        dtype: the dtype of the results.

    Returns:
        A mask of elements that are close, or equal, or both NaN.
    """
    rtol, atol = DEFAULT_TOLERANCES.get(dtype, (1e-1, 1e-2))
    return (a == b) | (unfinished(a) & unfinished(b)) | ((a - b).abs() <= rtol * size.abs() + atol)


def allowance(b: torch.Tensor, c: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Compute how far a result may be from the float64 result.

    Args:
        b: the CPU's result.
        c: the float64 result.
        dtype: the dtype of the results.

    Returns:
        SLACK times the CPU's own error, at this element or anywhere in the tensor.
    """
    errors = (b - c).abs()
    finite = errors[errors.isfinite()]
    worst = finite.max() if finite.numel() else torch.zeros((), dtype=torch.float64)
    rtol, atol = DEFAULT_TOLERANCES.get(dtype, (1e-1, 1e-2))
    limit = torch.where(errors.isfinite(), SLACK * torch.maximum(errors, worst), 0.0)
    return limit + rtol * c.abs() + atol


def magnitude(case: Case, dtype: torch.dtype) -> float:
    """Bound the rounding errors of great operands, which cancel in the CPU's order of steps and not in another.

    Args:
        case: the call.
        dtype: the dtype of the results.

    Returns:
        An absolute tolerance; 0 for pointwise operators, and if no operand is great.
    """
    if case.name in POINTWISE and not case.gradients:
        return 0.0
    greatest = 1.0
    for operand in case.operands:
        if operand.tensor.dtype.is_floating_point or operand.tensor.dtype.is_complex:
            sizes = widest(operand.tensor).abs()
            sizes = sizes[sizes.isfinite()]
            greatest *= max(1.0, float(sizes.max())) if sizes.numel() else 1.0
    # Attention's gradients take exponentials of differences of rounded scores: the errors are relative.
    least = 1.0 if "scaled_dot_product" in case.name else GREAT
    return SLACK * torch.finfo(dtype).eps * greatest if greatest > least else 0.0
