"""Index expressions as OpenCL C."""

import math

import sympy
from torch.utils._sympy.functions import FloorDiv, Identity, ModularIndexing
from torch.utils._sympy.printers import ExprPrinter


class IndexPrinter(ExprPrinter):
    """Prints expressions of 64-bit integers."""

    def _print_Integer(self, expr: sympy.Integer) -> str:
        return str(int(expr)) if abs(int(expr)) < 2**31 else f"{int(expr)}L"

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        x, divisor = self.doprint(expr.args[0]), self._divisor(expr)
        return f"(({x}) / ({divisor}))" if _is_natural(expr) else f"floor_div({x}, {divisor})"

    def _divisor(self, expr: sympy.Expr) -> str:
        text = self.doprint(expr.args[1])
        # A size that is a kernel argument may be 0, and a division by 0 would end the process.
        return f"max({text}, 1L)" if _is_natural(expr) and not expr.args[1].is_positive else text

    def _print_CleanDiv(self, expr: sympy.Expr) -> str:
        x, divisor = (self.doprint(arg) for arg in expr.args)
        return f"(({x}) / ({divisor}))"

    def _print_ModularIndexing(self, expr: sympy.Expr) -> str:
        x, divisor, modulus = expr.args
        base = f"({self.doprint(x)})"
        if divisor != 1:
            base = f"({base} / ({self.doprint(divisor)}))"
        return f"({base} % ({self.doprint(modulus)}))"

    def _print_PythonMod(self, expr: sympy.Expr) -> str:
        x, modulus = self.doprint(expr.args[0]), self._divisor(expr)
        return f"(({x}) % ({modulus}))" if _is_natural(expr) else f"floor_mod({x}, {modulus})"

    def _print_Mod(self, expr: sympy.Expr) -> str:
        x, modulus = (self.doprint(arg) for arg in expr.args)
        return f"(({x}) % ({modulus}))"

    def _print_Where(self, expr: sympy.Expr) -> str:
        condition, x, y = (self.doprint(arg) for arg in expr.args)
        return f"({condition} ? (long)({x}) : (long)({y}))"

    def _print_Min(self, expr: sympy.Expr) -> str:
        return self._nested("min", expr)

    def _print_Max(self, expr: sympy.Expr) -> str:
        return self._nested("max", expr)

    def _nested(self, function: str, expr: sympy.Expr) -> str:
        first, *others = (f"(long)({self.doprint(arg)})" for arg in expr.args)
        for other in others:
            first = f"{function}({first}, {other})"
        return first

    def _print_Abs(self, expr: sympy.Expr) -> str:
        return f"(long)abs((long)({self.doprint(expr.args[0])}))"

    def _print_Identity(self, expr: sympy.Expr) -> str:
        return self.doprint(expr.args[0])

    def _print_Pow(self, expr: sympy.Expr) -> str:
        base, exponent = expr.args
        if not (exponent.is_Integer and int(exponent) > 0):
            return f"pow({self._real(base)}, {self._real(exponent)})"
        return "(" + " * ".join([f"({self.doprint(base)})"] * int(exponent)) + ")"

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        return self._print_Pow(expr)

    def _print_LShift(self, expr: sympy.Expr) -> str:
        x, shift = (self.doprint(arg) for arg in expr.args)
        return f"((long)({x}) << ({shift}))"

    def _print_RShift(self, expr: sympy.Expr) -> str:
        x, shift = (self.doprint(arg) for arg in expr.args)
        return f"((long)({x}) >> ({shift}))"

    # --- values that Python computes in double: `Real` is double if the device supports it

    def _real(self, expr: sympy.Expr) -> str:
        return f"(Real)({self.doprint(expr)})"

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:
        return f"(long)({self.doprint(expr.args[0])})"

    def _print_FloorToInt(self, expr: sympy.Expr) -> str:
        return f"(long)floor({self._real(expr.args[0])})"

    def _print_CeilToInt(self, expr: sympy.Expr) -> str:
        return f"(long)ceil({self._real(expr.args[0])})"

    def _print_RoundToInt(self, expr: sympy.Expr) -> str:
        return f"(long)rint({self._real(expr.args[0])})"

    def _print_RoundDecimal(self, expr: sympy.Expr) -> str:
        x, digits = self._real(expr.args[0]), int(expr.args[1])
        # Integer powers of ten are exact.
        unit = f"((Real)1e{abs(digits)})"
        return f"(rint({x} * {unit}) / {unit})" if digits >= 0 else f"(rint({x} / {unit}) * {unit})"

    def _print_TruncToFloat(self, expr: sympy.Expr) -> str:
        return f"trunc({self._real(expr.args[0])})"

    def _print_ToFloat(self, expr: sympy.Expr) -> str:
        return f"({self._real(expr.args[0])})"

    def _print_IntTrueDiv(self, expr: sympy.Expr) -> str:
        x, y = map(self._real, expr.args)
        return f"({x} / {y})"

    _print_FloatTrueDiv = _print_IntTrueDiv

    def _print_FloatPow(self, expr: sympy.Expr) -> str:
        x, y = map(self._real, expr.args)
        return f"pow({x}, {y})"

    def _print_Rational(self, expr: sympy.Rational) -> str:
        return f"((Real){expr.p} / (Real){expr.q})"

    def _print_Float(self, expr: sympy.Float) -> str:
        return f"((Real){float(expr)!r})"


def _print_unary(self: IndexPrinter, expr: sympy.Expr) -> str:
    name = type(expr).__name__.removeprefix("OpaqueUnaryFn_")
    return f"{name}({self._real(expr.args[0])})"


for _name in (
    "sqrt",
    "cos",
    "cosh",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "asin",
    "acos",
    "atan",
    "exp",
    "log",
    "log2",
    "asinh",
):
    setattr(IndexPrinter, f"_print_OpaqueUnaryFn_{_name}", _print_unary)

# Functions whose value is not an integer.
_REAL = {
    "IntTrueDiv",
    "FloatTrueDiv",
    "FloatPow",
    "ToFloat",
    "TruncToFloat",
    "Float",
    "Rational",
    "Half",
    "RoundDecimal",
}


def is_real(expr: sympy.Expr) -> bool:
    """Return whether the value of an index expression is a floating-point number."""
    if expr.is_integer:
        return False
    kinds = {type(part).__name__ for part in sympy.preorder_traversal(expr)}
    is_symbol = any(symbol.is_integer is False for symbol in expr.free_symbols)
    return is_symbol or bool(kinds & _REAL) or any(kind.startswith("OpaqueUnaryFn") for kind in kinds)


def has_vectors(expr: sympy.Expr) -> bool:
    """Return whether the source of an index expression is valid for vectors of indices."""
    for part in sympy.preorder_traversal(expr):
        if isinstance(part, (sympy.Add, sympy.Mul, sympy.Symbol, sympy.Integer, ModularIndexing, Identity)):
            continue
        if not (isinstance(part, FloorDiv) and _is_natural(part)):
            return False
    return True


def _is_natural(expr: sympy.Expr) -> bool:
    return bool(expr.args[0].is_nonnegative) and bool(expr.args[1].is_nonnegative)


print_index = IndexPrinter().doprint


def in_lanes(index: sympy.Expr, first: sympy.Symbol, length: sympy.Expr, width: int) -> sympy.Expr:
    """Replace quotients and remainders of a lane's position by their source.

    Processors can divide vectors of 32-bit integers by constants, but not vectors of 64-bit integers.

    Args:
        index: an index expression.
        first: the position of the first lane; a constant may be added to it.
        length: greater than any position.
        width: lanes.

    Returns:
        The expression, with symbols whose names are vector expressions.
    """

    def fits(part: sympy.Expr) -> bool:
        if not isinstance(part, (FloorDiv, ModularIndexing)):
            return False
        sizes = (part.args[0] - first, *part.args[1:], length)
        return all(isinstance(size, sympy.Integer) and abs(size) < 1 << 29 for size in sizes) and min(sizes[1:]) > 0

    def text(part: sympy.Expr) -> sympy.Symbol:
        base, divisor, *modulus = part.args
        # Negative positions are moved up by some periods before the division; the quotient is corrected below.
        period = divisor * math.prod(modulus)
        periods = max(0, -((base - first) // period))
        text = (
            f"((uint{width})((uint)({first + (base - first) + periods * period})) + convert_uint{width}(LANES{width}))"
        )
        text = text if divisor == 1 else f"({text} / {divisor}u)"
        text = f"({text} % {modulus[0]}u)" if modulus else text
        text = f"convert_long{width}({text})"
        if modulus or not periods:
            return sympy.Symbol(text, integer=True, nonnegative=True)
        return sympy.Symbol(f"({text} - {periods})", integer=True)

    return index.replace(fits, text)
