"""Ranges whose innermost part is shorter than a vector: their lanes lie along the whole range.

An image of 2 x 2 pixels in 512 channels, or a matrix of 3 columns, has rows of 4 or 3 elements. Tensors that are
contiguous in the whole range are loaded in vectors, and the indices of all others are computed in each lane.
"""

import sympy
from torch._inductor.codegen.simd import IterationRangesEntry
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from torch_opencl.inductor.codegen.kernel import OpenCLKernel
from torch_opencl.inductor.codegen.statements import Expr


def join(kernel: OpenCLKernel, width: int) -> None:
    """Write the indices of such ranges as quotients and remainders of the whole range's index.

    Args:
        kernel: its statements are changed.
        width: of vectors.
    """
    for tree in kernel.range_trees:
        length = kernel.inner_length(tree.prefix)
        is_short = length is None or (isinstance(length, sympy.Integer) and int(length) < width)
        if not is_short or V.graph.sizevars.optimization_hint(tree.numel) < width:
            continue
        whole = tree.lookup(sympy.S.One, tree.numel)
        parts = [entry for entry in kernel.entries.values() if entry.prefix == tree.prefix and entry is not whole]
        # Quotients by unknown sizes have no vector form.
        if not parts or not all(isinstance(entry.divisor, sympy.Integer) for entry in parts):
            continue
        _rewrite(
            kernel,
            {entry.symbol(): _part(entry, whole.symbol()) for entry in parts},
            whole.symbol(),
            tree.numel,
        )
        for entry in parts:
            del kernel.entries[entry.name]
        kernel.entries[whole.name] = whole


def _part(entry: IterationRangesEntry, whole: sympy.Symbol) -> sympy.Expr:
    is_last = V.graph.sizevars.statically_known_equals(entry.divisor * entry.length, entry.root.numel)
    return FloorDiv(whole, entry.divisor) if is_last else ModularIndexing(whole, entry.divisor, entry.length)


def _rewrite(
    kernel: OpenCLKernel, parts: dict[sympy.Symbol, sympy.Expr], whole: sympy.Symbol, numel: sympy.Expr
) -> None:
    for phase in kernel.phases:
        for statement in (*phase.statements, *phase.after):
            expr = statement.expr
            args = tuple(
                V.graph.sizevars.simplify_with_ranges(arg.xreplace(parts), {whole: numel})
                if isinstance(arg, sympy.Expr) and not parts.keys().isdisjoint(arg.free_symbols)
                else arg
                for arg in expr.args
            )
            statement.expr = Expr(expr.op, args, expr.dtype)
