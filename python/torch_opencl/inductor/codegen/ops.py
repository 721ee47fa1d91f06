"""Inductor's operations as templates of OpenCL C, for every vector width.

In a template `{0}` is the first operand, and `@` the type of the operands, such as `float16` or `int`: functions of
compiled.cl have a name for each type. Comparisons of vectors yield 0 and -1 per lane, comparisons of scalars 0 and 1;
bools have either form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import sympy
import torch
from torch._inductor.codegen.common import OpOverrides, pointwise_overrides_data
from torch._inductor.utils import sympy_index_symbol
from torch._inductor.virtualized import OpsValue, V, ops

from .statements import Expr, Value


class Operands(Enum):
    """The dtype that an operation's operands are converted to."""

    RESULT = auto()
    """The dtype of the result."""
    PROMOTED = auto()
    """The promoted dtype of the operands: for comparisons, whose result is a bool."""


@dataclass(frozen=True)
class Template:
    """The source of an operation.

    Attributes:
        text: for all types without a separate template.
        vectors: for vectors of float.
        integers: for integers and bools.
        operands: the dtype to which operands are converted.
        may_overflow: true if the result of narrow integers has to be wrapped.
    """

    text: str
    vectors: str | None = None
    integers: str | None = None
    operands: Operands = Operands.RESULT
    may_overflow: bool = False


def _function(name: str, vectors: str | None = None, count: int = 1) -> Template:
    args = ", ".join(f"{{{i}}}" for i in range(count))
    return Template(f"{name}({args})", vectors and f"{vectors}({args})")


def _typed(name: str, count: int = 2, may_overflow: bool = False) -> Template:
    args = ", ".join(f"{{{i}}}" for i in range(count))
    return Template(f"{name}_@({args})", may_overflow=may_overflow)


def _compare(sign: str) -> Template:
    return Template(f"({{0}} {sign} {{1}})", operands=Operands.PROMOTED)


def _bitwise(sign: str) -> Template:
    return Template(f"({{0}} {sign} {{1}})")


TEMPLATES: dict[str, Template] = {
    "identity": Template("{0}"),
    "add": Template("({0} + {1})", may_overflow=True),
    "sub": Template("({0} - {1})", may_overflow=True),
    "mul": Template("({0} * {1})", may_overflow=True),
    "neg": Template("(-{0})", may_overflow=True),
    "truediv": Template("({0} / {1})"),
    "int_truediv": Template("({0} / {1})"),
    "truncdiv": _typed("div_trunc", may_overflow=True),
    "floordiv": _typed("div_floor", may_overflow=True),
    "remainder": _typed("mod_floor"),
    "mod": _typed("mod_trunc"),
    "fmod": _typed("mod_trunc"),
    "maximum": _typed("maximum"),
    "minimum": _typed("minimum"),
    "abs": Template("fabs({0})", integers="abs_@({0})", may_overflow=True),
    "sign": _typed("sign", 1),
    # -0 and NaN are preserved.
    "relu": Template("maximum_@(0, {0})"),
    "square": Template("({0} * {0})", may_overflow=True),
    "reciprocal": Template("(1 / {0})"),
    "sigmoid": Template("(1 / (1 + exp(-{0})))", "(1 / (1 + m_exp(-{0})))"),
    "fma": _function("fma", count=3),
    "exp": _function("exp", "m_exp"),
    "exp2": _function("exp2"),
    "expm1": _function("expm1", "m_expm1"),
    "log": _function("log", "m_log"),
    "log1p": _function("log1p", "m_log1p"),
    "log2": _function("log2"),
    "log10": _function("log10"),
    "sqrt": _function("sqrt"),
    "rsqrt": Template("(1 / sqrt({0}))"),
    "sin": _function("sin", "m_sin"),
    "cos": _function("cos", "m_cos"),
    "tan": _function("tan", "m_tan"),
    "asin": _function("asin"),
    "acos": _function("acos"),
    "atan": _function("atan"),
    "sinh": _function("sinh"),
    "cosh": _function("cosh"),
    "tanh": _function("tanh", "m_tanh"),
    "asinh": _function("asinh"),
    "acosh": _function("acosh"),
    "atanh": _function("atanh"),
    "erf": _function("erf", "m_erf"),
    "erfc": _function("erfc"),
    "lgamma": _function("lgamma"),
    "floor": Template("floor({0})", integers="{0}"),
    "ceil": Template("ceil({0})", integers="{0}"),
    "trunc": Template("trunc({0})", integers="{0}"),
    "round": Template("rint({0})", integers="{0}"),
    "atan2": _function("atan2", count=2),
    "hypot": _function("hypot", count=2),
    "copysign": _function("copysign", count=2),
    "nextafter": _function("nextafter", count=2),
    "pow": Template("power_@({0}, {1})", "m_pow({0}, {1})", may_overflow=True),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "isnan": Template("isnan({0})", integers="({0} != {0})", operands=Operands.PROMOTED),
    "isinf": Template("isinf({0})", integers="({0} != {0})", operands=Operands.PROMOTED),
    "signbit": Template("signbit({0})", integers="({0} < 0)", operands=Operands.PROMOTED),
    "logical_and": _bitwise("&"),
    "logical_or": _bitwise("|"),
    "logical_xor": _bitwise("^"),
    "logical_not": Template("not_@({0})"),
    "and_": _bitwise("&"),
    "or_": _bitwise("|"),
    "xor": _bitwise("^"),
    "bitwise_and": _bitwise("&"),
    "bitwise_or": _bitwise("|"),
    "bitwise_xor": _bitwise("^"),
    "bitwise_not": Template("(~{0})", may_overflow=True),
    "bitwise_left_shift": _typed("shift_left", may_overflow=True),
    "bitwise_right_shift": _typed("shift_right"),
    "lshift": _typed("shift_left", may_overflow=True),
    "rshift": _typed("shift_right"),
}


class Overrides(OpOverrides):
    """The handler that Inductor calls for each operation of a loop body: it returns an expression instead of source."""

    @staticmethod
    def constant(value: float | int | bool, dtype: torch.dtype) -> Expr:
        """A constant."""
        return Expr("constant", (value, dtype))

    @staticmethod
    def to_dtype(
        x: Value, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True
    ) -> Expr:
        """A conversion. It rounds to 16-bit floats only if the value itself has that dtype."""
        return Expr("to_dtype", (x, dtype, use_compute_types))

    @staticmethod
    def to_dtype_bitcast(x: Value, dtype: torch.dtype, src_dtype: torch.dtype) -> Expr:
        """The bits of a value, read as another dtype of the same size."""
        return Expr("bitcast", (x, dtype, src_dtype))

    @staticmethod
    def index_expr(expr: sympy.Expr, dtype: torch.dtype) -> Expr:
        """A position, or a size."""
        return Expr("index", (V.kernel.prepare_indexing(expr),))

    value_expr = index_expr

    @staticmethod
    def where(condition: Value, x: Value, y: Value) -> Expr:
        """A selection."""
        return Expr("where", (condition, x, y))

    @staticmethod
    def masked(mask: Value, body: Callable[[], Value], other: float | int | bool) -> Value:
        """A body whose loads are done only if a mask is set; otherwise its value is `other`."""
        with V.kernel.mask_loads(mask, other) as every_mask:
            result = body()
        return _unwrapped(ops.where(every_mask, result, other))

    @staticmethod
    def load_seed(name: str, offset: int) -> Any:
        """The seed of one use of random numbers."""
        return ops.load(name, sympy.Integer(offset))

    @staticmethod
    def rand(seed: Value, offset: Value) -> Expr:
        """Uniform random numbers in [0, 1)."""
        return Expr("rand", (seed, offset))

    @staticmethod
    def randn(seed: Value, offset: Value) -> Expr:
        """Random numbers of the standard normal distribution."""
        return Expr("randn", (seed, offset))

    @staticmethod
    def randint64(seed: Value, offset: Value, low: Value, high: Value) -> Expr:
        """Random integers in [low, high)."""
        return Expr("randint64", (seed, offset, low, high))

    @staticmethod
    def frexp(x: Value) -> tuple[Expr, Expr]:
        """Significand and exponent."""
        return Expr("frexp_significand", (x,), x.dtype), Expr("frexp_exponent", (x,), torch.int32)

    @staticmethod
    def ldexp(x: Value, n: Value) -> Expr:
        """A value times a power of two."""
        return Expr("ldexp", (x, n))

    @staticmethod
    def indirect_indexing(var: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> sympy.Symbol:
        """A loaded index, as a symbol of index expressions."""
        return sympy_index_symbol(str(_unwrapped(ops.to_dtype(var, torch.int64))))


def _unwrapped(value: Any) -> Any:
    return value.value if isinstance(value, OpsValue) else value


def _override(name: str) -> staticmethod:
    def expression(*args: Any) -> Expr:
        return Expr(name, args)

    return staticmethod(expression)


for _name in TEMPLATES:
    setattr(Overrides, _name, _override(_name))


def without_templates() -> list[str]:
    """Return the functions that Inductor's table has and this one lacks.

    Returns:
        Names of operators, such as `special_bessel_j0`.
    """
    return ["erfinv", *(data.name for name, data in pointwise_overrides_data.items() if name not in TEMPLATES)]
