"""Differences from the CPU that are no mistakes, each with its reason."""

import torch

from fuzz.case import Case

# Places of elements among equal ones, and of NaN among several: any will do. By a part of the function's name; the
# results that are places are integers.
ANY_PLACE = ("sort", "topk", "kthvalue", "median", "mode", "argmax", "argmin", "torch.max", "torch.min", "cummax",
             "cummin", "aminmax", "unique", "max_pool")  # fmt: skip

# Messages where the CPU has no kernel, and the device may have one.
NOT_ON_CPU = ("not implemented for", "not supported on CPU", "not support", "unsupported", "Unsupported",
              "only supports", "Half", "BFloat16", "not yet supported", "grad_input must be contiguous",
              "tensor does not have a device")  # fmt: skip

# Functions whose iterator in ATen takes no 0-d operand of the CPU beside tensors of a device, whichever it is.
DEVICE_OPERANDS_ONLY = ("torch.clamp", "clamp_", "torch.put", "put_", "addcdiv", "torch.addr", "prelu")


def any_place_will_do(case: Case, their: torch.Tensor, number: int) -> bool:
    """Say whether a result is places among elements that may be equal.

    Args:
        case: the call.
        their: the CPU's result.
        number: its number among the results.

    Returns:
        Whether it must not be compared; the values at these places are another result.
    """
    if their.dtype != torch.int64:
        return False
    return any(part in case.name for part in ANY_PLACE) and not case.kwargs.get("stable", False)


def allowed_error(case: Case, ours: Exception | None, theirs: Exception | None) -> bool:
    """Say whether two outcomes, one an exception at least, may differ.

    Args:
        case: the call.
        ours: what the device raised.
        theirs: what the CPU raised.

    Returns:
        Whether one of the reasons below holds.
    """
    # The device may know a dtype or a form that the CPU does not.
    if theirs is not None and any(part in str(theirs) for part in NOT_ON_CPU):
        return True
    # A quotient of integers by zero is 0 here: a kernel cannot raise (README, What works).
    if isinstance(theirs, ZeroDivisionError) or "ZeroDivisionError" in str(theirs):
        return True
    # The function itself refuses all devices but some.
    if isinstance(ours, NotImplementedError | RuntimeError) and "only supported on" in str(ours):
        return True
    is_mixed = "Expected all tensors to be on the same device" in str(ours)
    if is_mixed and any(part in case.name for part in DEVICE_OPERANDS_ONLY):
        return True
    # With out= the device refuses a 0-d operand of the CPU, and names both devices.
    if is_mixed and "out" in case.kwargs and any(operand.on_cpu for operand in case.operands):
        return True
    # An index out of range is an IndexError here; the CPU's functions raise either.
    if isinstance(ours, IndexError) and isinstance(theirs, RuntimeError):
        return True
    # Sections are asked for on the CPU, for all devices alike.
    if "to be on cpu" in str(ours):
        return True
    # CUDA takes one 0-d operand of the CPU, too, and says the same of two.
    if "too many CPU scalars" in str(ours):
        return True
    # NotImplementedError is a RuntimeError.
    return isinstance(ours, RuntimeError) and isinstance(theirs, RuntimeError)


def hidden(case: Case, mine: torch.Tensor, their: torch.Tensor) -> torch.Tensor:
    """Find elements of which one side has a number and the other has none.

    Args:
        case: the call.
        mine: the device's result, in float64.
        their: the CPU's.

    Returns:
        In attention, all that NaN among the values reaches with a weight of 0 on the CPU: what a causal mask hides is
        not read here. In convolutions with an infinite operand, NaN that is its product with the zeros of padding: the
        CPU leaves these out of some gradients. In var_mean and std_mean of infinite elements, their mean, which is
        infinite: the CPU's update of a running mean takes differences of infinities.
    """
    is_infinite = any(bool(operand.tensor.isinf().any()) for operand in case.operands)
    if is_infinite and ("var_mean" in case.name or "std_mean" in case.name):
        return their.isnan() & mine.isinf()
    if "scaled_dot_product" in case.name and case.kwargs.get("is_causal"):
        return their.isnan() & mine.isfinite()
    if "conv" in case.name and is_infinite:
        return ~mine.isfinite() & their.isfinite()
    return torch.zeros_like(their, dtype=torch.bool)
