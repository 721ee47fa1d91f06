"""Matmuls that can be fused with following operations."""

from typing import Any

from torch._inductor import ir
from torch._inductor.kernel.mm_common import mm_args

from . import epilogues


class Matmul(epilogues.Gemm):
    """A matmul.

    Attributes:
        operator: mm, bmm, addmm or baddbmm.
        scales: alpha and beta of addmm and baddbmm.
    """

    def __init__(self, layout: ir.Layout, inputs: list[Any], operator: str, scales: dict[str, float]) -> None:
        super().__init__(layout, inputs, operator)
        self.scales = scales

    def eager_lines(self) -> list[str]:
        """The call of the eager operator, whose first argument is the added tensor."""
        a, b, *added = self.references()
        scales = [f"{name}={value!r}" for name, value in self.scales.items()]
        arguments = [*added, a, b, *scales, f"out={self.codegen_reference()}"]
        return [f"extern_kernels.{self.operator}({', '.join(arguments)})"]

    def fused_call(self) -> tuple[str, list[str]]:
        """The matrices, the added tensor, and the scales."""
        a, b, *added = self.references()
        scales = [repr(self.scales.get(scale, 1)) for scale in ("beta", "alpha")]
        return "matmul", [a, b, *(added or ["None"]), *scales]


def lowered(operator: str, matrices: tuple[Any, Any], added: tuple[Any, ...], scales: dict[str, float]) -> Any:
    """Lower a matmul to a template.

    Args:
        operator: mm, bmm, addmm or baddbmm.
        matrices: the two matrices, or batches of them.
        added: tensors that are added to their matmul; broadcast to its shape.
        scales: alpha and beta, if a tensor is added.

    Returns:
        The result; None if the matmul is not lowered here.
    """
    is_served = epilogues.is_served((*added, *matrices))
    if not is_served or not all(isinstance(scale, (int, float)) for scale in scales.values()):
        return None
    _, _, _, layout, *inputs = mm_args(*matrices, *added)
    return ir.TensorBox.create(Matmul(layout, inputs, operator, scales))
