"""Cases of pointwise operators and reductions: type promotion, broadcasting, 0-d operands, Python scalars."""

from random import Random
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, ReductionOpInfo, UnaryUfuncInfo

from fuzz.case import Case, Operand
from fuzz.material import ALL, FLOATING, broadcastable, extremes, kind, laid_out, operand, shape

# The CPU's results for these do not check the device (jiterator is for CUDA).
LEFT_OUT = {"jiterator_unary", "jiterator_binary", "jiterator_binary_return_by_ref", "complex", "polar"}


def named(info: OpInfo) -> str:
    """Return the expression for the function of an OpInfo.

    Args:
        info: an op of PyTorch's test suite.

    Returns:
        An expression for `fuzz.case.resolve`.
    """
    for space, prefix in ((torch, "torch"), (torch.nn.functional, "F")):
        short = info.name.removeprefix("nn.functional.")
        inner: Any = space
        for part in short.split("."):
            inner = getattr(inner, part, None)
        if inner is info.op:
            return f"{prefix}.{short}"
    return f'opinfo("{info.full_name}")'


def infos(group: type) -> list[OpInfo]:
    """List OpInfos.

    Args:
        group: their class.

    Returns:
        Those that can be compared with the CPU.
    """
    return [info for info in op_db if isinstance(info, group) and info.name not in LEFT_OUT]


UNARY = infos(UnaryUfuncInfo)
BINARY = infos(BinaryUfuncInfo)
REDUCTIONS = infos(ReductionOpInfo)
TERNARY = ("torch.where", "torch.lerp", "torch.addcmul", "torch.addcdiv", "torch.clamp")


def special(rng: Random) -> float:
    """Choose the share of extreme elements.

    Args:
        rng: where choices come from.

    Returns:
        A probability, often 0.
    """
    return rng.choice((0.0, 0.0, 0.05, 0.3, 1.0))


def operands(rng: Random, count: int, differentiable: bool) -> list[Any]:
    """Make operands that broadcast to one shape.

    Args:
        rng: where choices come from.
        count: how many.
        differentiable: whether they are floating point and their gradients are wanted.

    Returns:
        Operands, and seldom a Python scalar.
    """
    full, dtypes, share = shape(rng), FLOATING if differentiable else kind(rng), special(rng)
    one_dtype = rng.choice(dtypes) if rng.random() < 0.6 else None
    made: list[Any] = []
    for _ in range(count):
        dtype = one_dtype or rng.choice(dtypes)
        sizes = full if not made else broadcastable(rng, full)
        sizes = () if rng.random() < 0.12 else sizes
        if made and rng.random() < 0.12:
            value = rng.choice((0, 1, 2, -1, 0.5, 3.7, True, *extremes(rng.choice((torch.float32, torch.int64)))))
            made.append(value)
            continue
        one = operand(rng, sizes, dtype, share)
        made.append(Operand(one.tensor, one.on_cpu, one.view, differentiable))
    return made


def pointwise(rng: Random) -> Case:
    """Make a case of a pointwise operator.

    Args:
        rng: where choices come from.

    Returns:
        A call as a function, into `out=`, or in place.
    """
    arity = rng.choice((1, 2, 2, 3))
    differentiable = rng.random() < 0.25
    if arity == 3:
        name, kwargs = rng.choice(TERNARY), {}
        args = operands(rng, 3, differentiable)
        if name == "torch.where":
            args[0] = operand(rng, args[0].tensor.shape, torch.bool)
        if name in ("torch.addcmul", "torch.addcdiv") and rng.random() < 0.5:
            kwargs["value"] = rng.choice((0, 2, 0.5, -1))
        info = None
    else:
        info = rng.choice(UNARY if arity == 1 else BINARY)
        name, kwargs = named(info), {}
        args = operands(rng, arity, differentiable)
        if info.name in ("add", "sub", "rsub") and rng.random() < 0.3:
            kwargs["alpha"] = rng.choice((2, -1, 0, 0.5))
        if info.name == "div" and rng.random() < 0.6:
            kwargs["rounding_mode"] = rng.choice(("floor", "trunc", None))
        if info.name == "clamp" and arity == 2:
            kwargs["min"] = args.pop()
    if rng.random() < 0.1 and arity == 2 and not kwargs and isinstance(args[1], Operand):
        args.reverse()
    return variant(rng, Case(name, tuple(args), kwargs, differentiable), info)


def variant(rng: Random, case: Case, info: OpInfo | None) -> Case:
    """Choose between the variants of an operator.

    Args:
        rng: where choices come from.
        case: a call of the function.
        info: its OpInfo, or None.

    Returns:
        The case itself, or with `out=`, or in place.
    """
    if case.gradients or rng.random() < 0.6 or not case.operands:
        return case
    first = case.operands[0]
    sizes, dtype = first.tensor.shape, first.tensor.dtype
    if rng.random() < 0.5:
        dtype = dtype if rng.random() < 0.6 else rng.choice(ALL)
        sizes = (0,) if rng.random() < 0.2 else sizes
        out = Operand(laid_out(rng, torch.zeros(sizes, dtype=dtype), writable=True))
        return Case(case.name, case.args, {**case.kwargs, "out": out})
    method = case.name.removeprefix("torch.") + "_"
    if not hasattr(torch.Tensor, method) or not isinstance(case.args[0], Operand):
        return case
    target = Operand(laid_out(rng, first.tensor, writable=True))
    return Case(f"torch.Tensor.{method}", (target, *case.args[1:]), case.kwargs)


def reduction(rng: Random) -> Case:
    """Make a case of a reduction.

    Args:
        rng: where choices come from.

    Returns:
        A call with some of `dim`, `keepdim` and `dtype`.
    """
    info = rng.choice(REDUCTIONS)
    differentiable = rng.random() < 0.25
    sizes = shape(rng)
    one = operand(rng, sizes, rng.choice(FLOATING if differentiable else kind(rng)), special(rng))
    one = Operand(one.tensor, False, one.view, differentiable)
    kwargs: dict[str, Any] = {}
    if sizes and rng.random() < 0.7:
        dims = rng.sample(range(len(sizes)), rng.randint(1, len(sizes)))
        several = getattr(info, "supports_multiple_dims", False) and rng.random() < 0.7
        kwargs["dim"] = tuple(dims) if several else dims[0] - rng.choice((0, len(sizes)))
        if rng.random() < 0.5:
            kwargs["keepdim"] = rng.random() < 0.7
    if info.name in ("sum", "mean", "prod", "nansum", "nanmean") and rng.random() < 0.3:
        kwargs["dtype"] = rng.choice(ALL)
    if info.name in ("std", "var", "std_mean", "var_mean") and rng.random() < 0.5:
        kwargs["correction"] = rng.choice((0, 1, 2, 0.5))
    return Case(named(info), (one,), kwargs, differentiable)
