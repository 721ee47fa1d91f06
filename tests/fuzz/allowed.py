"""Allowed differences from the CPU, each with its reason."""

import torch

from fuzz.case import Case

# Functions whose results are indices of elements: among equal elements, or several NaN, any index is valid. Each entry
# is a part of the function's name; integer results are the indices.
ANY_PLACE = ("sort", "topk", "kthvalue", "median", "mode", "argmax", "argmin", "torch.max", "torch.min", "cummax",
             "cummin", "aminmax", "unique", "max_pool")  # fmt: skip

# Parts of error messages for cases that the CPU does not implement, and the device may.
NOT_ON_CPU = ("not implemented for", "not supported on CPU", "not support", "unsupported", "Unsupported",
              "only supports", "Half", "BFloat16", "not yet supported", "grad_input must be contiguous",
              "tensor does not have a device")  # fmt: skip


# Messages that refuse tensors on several devices.
MIXED_DEVICES = ("on the same device", "in the same device", "same device type", "out tensor to have device")


def any_place_will_do(case: Case, their: torch.Tensor, number: int) -> bool:
    """Tell whether a result is an index among elements that may be equal.

    Args:
        case: the call.
        their: the CPU's result.
        number: its position among the results.

    Returns:
        True if it must not be compared; another result has the values at these indices.
    """
    if their.dtype != torch.int64:
        return False
    return any(part in case.name for part in ANY_PLACE) and not case.kwargs.get("stable", False)


def allowed_error(case: Case, ours: Exception | None, theirs: Exception | None) -> bool:
    """Tell whether two outcomes, at least one of them an exception, may differ.

    Args:
        case: the call.
        ours: what the device raised.
        theirs: what the CPU raised.

    Returns:
        True if one of the reasons below holds.
    """
    # The device may implement a dtype or a variant that the CPU does not.
    if theirs is not None and any(part in str(theirs) for part in NOT_ON_CPU):
        return True
    # Integer division by zero gives 0 on the device: a kernel cannot raise (docs/limits.md).
    if isinstance(theirs, ZeroDivisionError) or "ZeroDivisionError" in str(theirs):
        return True
    # The function itself supports only some device types.
    if isinstance(ours, NotImplementedError | RuntimeError) and "only supported on" in str(ours):
        return True
    # On devices only TensorIterator accepts a 0-d CPU operand; other functions raise and name both devices.
    # test_promotion.py tests the operators that must accept it.
    is_mixed = any(part in str(ours) for part in MIXED_DEVICES)
    if is_mixed and any(operand.on_cpu for operand in case.operands):
        return True
    # An index out of range raises IndexError on the device; the CPU raises IndexError or RuntimeError.
    if isinstance(ours, IndexError) and isinstance(theirs, RuntimeError):
        return True
    # Split sizes must be a CPU tensor, on all devices.
    if "to be on cpu" in str(ours):
        return True
    # CUDA also accepts only one 0-d CPU operand, and raises the same error for two.
    if "too many CPU scalars" in str(ours):
        return True
    # NotImplementedError is a RuntimeError.
    return isinstance(ours, RuntimeError) and isinstance(theirs, RuntimeError)


def hidden(case: Case, mine: torch.Tensor, their: torch.Tensor) -> torch.Tensor:
    """Find elements that are NaN or infinite on one side only, for a known reason.

    Args:
        case: the call.
        mine: the device's result, in float64.
        their: the CPU's.

    Returns:
        In attention, NaN among the values that the CPU multiplies by a weight of 0: the device does not read what a
        causal mask hides. In convolutions with an infinite operand, NaN from its product with the zeros of padding: the
        CPU leaves these out of some gradients. In var_mean and std_mean of infinite elements, their infinite mean: the
        CPU's update of a running mean subtracts infinities.
    """
    is_infinite = any(bool(operand.tensor.isinf().any()) for operand in case.operands)
    if is_infinite and ("var_mean" in case.name or "std_mean" in case.name):
        return their.isnan() & mine.isinf()
    if "scaled_dot_product" in case.name and case.kwargs.get("is_causal"):
        return their.isnan() & mine.isfinite()
    if "conv" in case.name and is_infinite:
        return ~mine.isfinite() & their.isfinite()
    return torch.zeros_like(their, dtype=torch.bool)
