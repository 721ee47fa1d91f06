"""Pointwise operators, which allocate their result or write it to ``out=``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, random

# Sides of the square matrices, by layout. The C library returns freed allocations of 16 M elements to the system, which
# costs page faults every time; it keeps allocations of 4 M elements.
SIDES = {"dense": 4096, "sliced": 2048, "transposed": 2048, "broadcast": 2048}
# Elements of every row that a sliced operand leaves out.
MARGIN = 16


@dataclass(frozen=True)
class Op:
    """An operator.

    Attributes:
        name: its name in ``torch``, or else in ``torch.ops.aten``.
        operands: a letter for each tensor: x any values, p positive values, m a mask.
        scalars: arguments after the tensors.
        dtypes: the dtypes to measure.
        out: whether it writes into ``out=`` directly, rather than copying a result there.
    """

    name: str
    operands: str
    scalars: tuple = ()
    dtypes: tuple[str, ...] = ("f32", "bf16")
    out: bool = True


ALL = ("f32", "bf16", "i64")
OPS = (
    Op("add", "xx", dtypes=ALL),
    Op("sub", "xx", dtypes=ALL),
    Op("mul", "xx", dtypes=ALL),
    Op("div", "xp", dtypes=ALL),
    Op("remainder", "xp", dtypes=ALL),
    Op("pow", "px"),
    Op("atan2", "xp"),
    Op("maximum", "xx", dtypes=ALL),
    Op("minimum", "xx", dtypes=ALL),
    Op("eq", "xx", dtypes=ALL),
    Op("lt", "xx", dtypes=ALL),
    Op("bitwise_and", "xx", dtypes=("i64",)),
    Op("where", "mxx", dtypes=ALL),
    Op("masked_fill", "xm", (1,), dtypes=ALL, out=False),
    Op("lerp", "xxp"),
    Op("addcmul", "xxx", dtypes=ALL),
    Op("addcdiv", "xxp"),
    Op("threshold_backward", "xx", (0,), out=False),
    Op("sigmoid_backward", "xp", out=False),
    Op("tanh_backward", "xp", out=False),
    Op("gelu_backward", "xx", out=False),
    Op("silu_backward", "xx", out=False),
    Op("neg", "x", dtypes=ALL),
    Op("abs", "x", dtypes=ALL),
    Op("sign", "x", dtypes=ALL),
    Op("square", "x", dtypes=ALL, out=False),
    Op("reciprocal", "p"),
    Op("sqrt", "p"),
    Op("rsqrt", "p"),
    Op("exp", "x"),
    Op("expm1", "x"),
    Op("log", "p"),
    Op("log1p", "p"),
    Op("sin", "x"),
    Op("cos", "x"),
    Op("tanh", "x"),
    Op("erf", "x"),
    Op("floor", "x"),
    Op("round", "x"),
    Op("clamp", "x", (-1, 1), dtypes=ALL),
    Op("relu", "x", dtypes=ALL, out=False),
    Op("leaky_relu", "x"),
    Op("elu", "x"),
    Op("gelu", "x"),
    Op("silu", "x"),
    Op("sigmoid", "x"),
    Op("hardswish", "x"),
    Op("softplus", "x"),
    Op("isnan", "x", dtypes=("f32", "bf16"), out=False),
    Op("logical_not", "x", dtypes=ALL),
)
# Only the last of several operands has this layout.
LAYOUTS_OF_SEVERAL = ("transposed", "broadcast")
KINDS = {"x": "normal", "p": "positive", "m": "mask"}


def cases() -> Iterator[Case]:
    """Yield every operator in each of its dtypes and layouts, and dense ones with ``out=``."""
    # Rows with the same operands are adjacent, so that the operands are made once.
    for dtype, layout in product(ALL, SIDES):
        for op in OPS:
            if dtype in op.dtypes and layout in _layouts(op):
                yield _case(op, dtype, layout, out=False)
                if op.out and layout == "dense":
                    yield _case(op, dtype, layout, out=True)


def _layouts(op: Op) -> tuple[str, ...]:
    # A gradient has the strides of the input.
    has_others = len(op.operands) > 1 and not op.name.endswith("_backward")
    return ("dense", "sliced", *(LAYOUTS_OF_SEVERAL if has_others else ()))


def _case(op: Op, dtype: str, layout: str, out: bool) -> Case:
    return Case(
        group="pointwise-out" if out else "pointwise",
        name=f"{op.name} {dtype} {layout}",
        build=partial(_build, op, DTYPES[dtype], layout, out),
        quick=layout == "dense" and dtype == op.dtypes[0],
    )


def _build(op: Op, dtype: torch.dtype, layout: str, out: bool, device: torch.device) -> Work:
    operands = [_operand(letter, index, dtype, layout, device) for index, letter in enumerate(op.operands)]
    if layout in LAYOUTS_OF_SEVERAL:
        operands[-1] = operands[-1].t() if layout == "transposed" else operands[-1][0]
    arguments = (*operands, *op.scalars)
    keywords = {"out": torch.empty_like(_function(op.name)(*arguments))} if out else {}
    function = _function(op.name, out)
    return Work(run=lambda: function(*arguments, **keywords), reads=operands, flops=operands[0].numel())


def _function(name: str, out: bool = False) -> Callable[..., torch.Tensor]:
    """Return the operator that a user would call."""
    if hasattr(torch, name):
        return getattr(torch, name)
    # An overload: its resolution from the arguments can take longer than the operator.
    return getattr(getattr(torch.ops.aten, name), "out" if out else "default")


def _operand(letter: str, index: int, dtype: torch.dtype, layout: str, device: torch.device) -> torch.Tensor:
    side, margin = SIDES[layout], MARGIN if layout == "sliced" else 0
    wide = random(device, side, side + 2 * margin, dtype=dtype, kind=KINDS[letter], index=index)
    return wide[:, margin : side + margin]
