"""Index expressions as OpenCL C."""

import sympy
from torch.utils._sympy.printers import ExprPrinter


class IndexPrinter(ExprPrinter):
    """Prints expressions of 64-bit integers."""

    def _print_Integer(self, expr: sympy.Integer) -> str:
        return str(int(expr)) if abs(int(expr)) < 2**31 else f"{int(expr)}L"

    def _print_FloorDiv(self, expr: sympy.Expr) -> str:
        x, divisor = (self.doprint(arg) for arg in expr.args)
        return f"(({x}) / ({divisor}))" if _is_natural(expr) else f"floor_div({x}, {divisor})"

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
        x, modulus = (self.doprint(arg) for arg in expr.args)
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
            raise NotImplementedError(f"{expr} in an index")
        return "(" + " * ".join([f"({self.doprint(base)})"] * int(exponent)) + ")"

    def _print_PowByNatural(self, expr: sympy.Expr) -> str:
        return self._print_Pow(expr)

    def _print_LShift(self, expr: sympy.Expr) -> str:
        x, shift = (self.doprint(arg) for arg in expr.args)
        return f"((long)({x}) << ({shift}))"

    def _print_RShift(self, expr: sympy.Expr) -> str:
        x, shift = (self.doprint(arg) for arg in expr.args)
        return f"((long)({x}) >> ({shift}))"

    def _print_TruncToInt(self, expr: sympy.Expr) -> str:
        return f"(long)({self.doprint(expr.args[0])})"

    def _print_FloorToInt(self, expr: sympy.Expr) -> str:
        return f"(long)floor((float)({self.doprint(expr.args[0])}))"

    def _print_CeilToInt(self, expr: sympy.Expr) -> str:
        return f"(long)ceil((float)({self.doprint(expr.args[0])}))"

    def _print_ToFloat(self, expr: sympy.Expr) -> str:
        return f"(float)({self.doprint(expr.args[0])})"

    def _print_IntTrueDiv(self, expr: sympy.Expr) -> str:
        x, y = (self.doprint(arg) for arg in expr.args)
        return f"((float)({x}) / (float)({y}))"

    def _print_Float(self, expr: sympy.Float) -> str:
        return f"{float(expr)!r}f"


def _is_natural(expr: sympy.Expr) -> bool:
    return bool(expr.args[0].is_nonnegative) and bool(expr.args[1].is_positive)


print_index = IndexPrinter().doprint
