"""bitsandbytes' optimizers on OpenCL devices: a kernel launch updates a parameter and its states."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_opencl._bitsandbytes_kernels import BLOCK, DTYPES, kernel

# The attribute of a paged optimizer that has warned.
WARNED = "_torch_opencl_warned"
# Codes of a byte.
_CODES = 256


class _Rule(NamedTuple):
    """How an optimizer updates."""

    macro: str
    """Its name in the kernels' source."""
    has_second: bool = False
    """True if there is a second state, the mean of squares."""
    is_decoupled: bool = False
    """True if weight decay shrinks the parameter; it is added to the gradient otherwise."""


_RULES = {
    "adam": _Rule("ADAM", has_second=True, is_decoupled=True),
    "lamb": _Rule("ADAM", has_second=True, is_decoupled=True),
    "ademamix": _Rule("ADEMAMIX", has_second=True, is_decoupled=True),
    "momentum": _Rule("MOMENTUM"),
    "lars": _Rule("MOMENTUM"),
    "rmsprop": _Rule("SQUARES"),
    "adagrad": _Rule("SQUARES"),
    "lion": _Rule("LION", is_decoupled=True),
}


def _coefficients(
    name: str, betas: tuple[float, float, float], alpha: float, eps: float, step: int
) -> tuple[float, ...]:
    """The arguments of the kernels from ``beta1`` on, computed in double."""
    if step < 1:
        raise RuntimeError(f"bitsandbytes' optimizer {name}: steps are counted from 1, got step={step}")
    rule, (beta1, beta2, beta3) = _RULES[name], betas
    fresh1, scale1, scale2 = 1 - beta1, 1.0, 1.0
    if rule.macro == "MOMENTUM":
        # The state begins as the gradient.
        beta1, fresh1 = (beta1 if step > 1 else 0.0), 1.0
    elif name == "adagrad":
        beta1, fresh1 = 1.0, 1.0
    elif rule.has_second:
        scale1, scale2 = 1 / (1 - beta1**step), 1 / math.sqrt(1 - beta2**step)
    return beta1, fresh1, beta2, 1 - beta2, beta3, 1 - beta3, alpha, eps, scale1, scale2


def _check(op: str, name: str, p: Tensor, expected: Mapping[str, tuple[Tensor | None, torch.dtype, int]]) -> None:
    """Check the tensors: each has a dtype and a number of elements, and lies on the device of the parameter."""

    def error(problem: str) -> RuntimeError:
        return RuntimeError(
            f"bitsandbytes::{op}: {name} of a parameter of {p.dtype}, shape {tuple(p.shape)}: {problem}"
        )

    if name not in _RULES:
        raise error(f"the optimizers are {', '.join(_RULES)}")
    if p.dtype not in DTYPES:
        raise error(f"parameters are {', '.join(map(str, DTYPES))}")
    for word, (tensor, dtype, count) in expected.items():
        if tensor is None:
            raise error(f"{word} is missing")
        if tensor.device != p.device:
            raise error(f"{word} is on {tensor.device}, and the parameter is on {p.device}")
        if tensor.dtype != dtype or tensor.numel() != count:
            found = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            raise error(f"{word} is {found}, but has to be {dtype} with {count} elements")


def _decay(name: str, weight_decay: float, lr: float) -> tuple[float, float]:
    """The factor of the parameter, and the multiple of the parameter that is added to the gradient."""
    return (1 - lr * weight_decay, 0.0) if _RULES[name].is_decoupled else (1.0, weight_decay)


def _copy_back(tensors: Sequence[Tensor], contiguous: Sequence[Tensor]) -> None:
    for tensor, packed in zip(tensors, contiguous, strict=True):
        if packed is not tensor:
            tensor.copy_(packed)


@torch.no_grad()
def optimizer_update_32bit(
    optimizer_name: str,
    g: Tensor,
    p: Tensor,
    state1: Tensor,
    state2: Tensor | None,
    unorm_vec: Tensor | None,
    max_unorm: float,
    param_norm: float,
    beta1: float,
    beta2: float,
    beta3: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    step: int,
    lr: float,
    gnorm_scale: float,
    skip_zeros: bool = False,
) -> None:
    """Update a parameter and its states in float32. The schema is bitsandbytes'.

    If ``max_unorm`` is positive, ``unorm_vec`` gets the squared norm of the update.
    """
    rule, count, has_limit = _RULES.get(optimizer_name), p.numel(), max_unorm > 0
    expected = {
        "g": (g, p.dtype, count),
        "state1": (state1, torch.float32, count * (2 if optimizer_name == "ademamix" else 1)),
        **({"state2": (state2, torch.float32, count)} if rule is not None and rule.has_second else {}),
        **({"unorm_vec": (unorm_vec, torch.float32, 1)} if has_limit else {}),
    }
    _check("optimizer_update_32bit", optimizer_name, p, expected)
    rule = _RULES[optimizer_name]
    if count == 0:
        return
    mutated = [p, state1] if state2 is None else [p, state1, state2]
    parameter, first, *others = contiguous = [tensor.contiguous() for tensor in mutated]
    gradient, second, norm, limit = g.contiguous(), others[0] if others else first, first, 0.0
    kept, coupled = _decay(optimizer_name, weight_decay, lr)
    rest = (coupled, gnorm_scale, *_coefficients(optimizer_name, (beta1, beta2, beta3), alpha, eps, step), count)
    if has_limit and unorm_vec is not None:
        groups = -(-count // BLOCK)
        sums = torch.empty(groups, dtype=torch.float32, device=p.device)
        squares = kernel("update_squares", rule.macro, skip_zeros)
        sizes = {"global_size": groups * BLOCK, "local_size": BLOCK}
        squares(parameter, gradient, first, second, sums, *rest, **sizes)
        unorm_vec.copy_(sums.sum())
        norm, limit = unorm_vec, max_unorm * param_norm + (0.0 if rule.has_second else eps)
    update = kernel("update_32bit", rule.macro, skip_zeros, has_limit)
    update(parameter, gradient, first, second, norm, limit, lr, kept, *rest)
    _copy_back(mutated, contiguous)


@torch.no_grad()
def optimizer_update_8bit_blockwise(
    optimizer_name: str,
    g: Tensor,
    p: Tensor,
    state1: Tensor,
    state2: Tensor | None,
    beta1: float,
    beta2: float,
    beta3: float,
    alpha: float,
    eps: float,
    step: int,
    lr: float,
    qmap1: Tensor,
    qmap2: Tensor | None,
    absmax1: Tensor,
    absmax2: Tensor | None,
    weight_decay: float,
    gnorm_scale: float,
    skip_zeros: bool = False,
) -> None:
    """Update a parameter and its states, which are codes with a scale for each 256 elements.

    The schema is bitsandbytes'.
    """
    rule, count, blocks = _RULES.get(optimizer_name), p.numel(), -(-p.numel() // BLOCK)
    slots = 2 if optimizer_name == "ademamix" else 1
    expected: dict[str, tuple[Tensor | None, torch.dtype, int]] = {
        "g": (g, p.dtype, count),
        "state1": (state1, torch.uint8, count * slots),
        "qmap1": (qmap1, torch.float32, _CODES),
        "absmax1": (absmax1, torch.float32, blocks * slots),
    }
    if rule is not None and rule.has_second:
        expected |= {
            "state2": (state2, torch.uint8, count),
            "qmap2": (qmap2, torch.float32, _CODES),
            "absmax2": (absmax2, torch.float32, blocks),
        }
    _check("optimizer_update_8bit_blockwise", optimizer_name, p, expected)
    rule = _RULES[optimizer_name]
    if count == 0:
        return
    mutated, codes = [p, state1, absmax1], [qmap1, qmap1]
    if rule.has_second and state2 is not None and qmap2 is not None and absmax2 is not None:
        mutated, codes = [*mutated, state2, absmax2], [qmap1, qmap2]
    contiguous = [tensor.contiguous() for tensor in mutated]
    kept, coupled = _decay(optimizer_name, weight_decay, lr)
    rest = _coefficients(optimizer_name, (beta1, beta2, beta3), alpha, eps, step)
    kernel("update_8bit", rule.macro, skip_zeros)(
        *(contiguous[0], g.contiguous(), *contiguous[1:3], *contiguous[-2:], *(code.contiguous() for code in codes)),
        *(lr, kept, coupled, gnorm_scale, *rest, count),
        global_size=blocks * BLOCK,
        local_size=BLOCK,
    )
    _copy_back(mutated, contiguous)


def keep_paged_states_on_devices() -> None:
    """Let paged optimizers allocate usual tensors, with a warning, as bitsandbytes lets them on the CPU.

    OpenCL has no counterpart of CUDA's managed memory, from which bitsandbytes would take the states.
    """
    for module, owner, method, slots in (
        ("optimizer", "Optimizer8bit", "get_state_buffer", ()),
        ("ademamix", "AdEMAMix", "_get_state_double_buffer", (2,)),
    ):
        found = getattr(importlib.import_module(f"bitsandbytes.optim.{module}"), owner, None)
        # A private method may be missing in other releases.
        if allocate := getattr(found, method, None):
            setattr(found, method, _allocator(allocate, slots))


def _allocator(allocate: Callable[..., Tensor], slots: tuple[int, ...]) -> Callable[..., Tensor]:
    @wraps(allocate)
    def allocated(self: Any, p: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        if not self.is_paged or p.device.type != "opencl":
            return allocate(self, p, dtype=dtype)
        if not getattr(self, WARNED, False):
            setattr(self, WARNED, True)
            warnings.warn("paged optimizers keep their states in device memory on opencl devices", stacklevel=2)
        return torch.zeros((*slots, *p.shape), dtype=dtype, device=p.device)

    return allocated
