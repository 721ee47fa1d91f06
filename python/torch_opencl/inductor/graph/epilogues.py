"""Epilogues: element-wise operations after a matmul or a convolution, computed in its kernel.

Matmuls and convolutions are lowered to templates, with which the scheduler fuses the operations that follow. Their
statements become functions, which our GEMM kernels call with each result (rust/ops/matmul/epilogue.cl) instead of
storing it. If nothing is fused, the wrapper calls the eager operator, as for all other operators.
"""

from abc import abstractmethod
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.dependencies import MemoryDep
from torch._inductor.utils import get_fused_kernel_name
from torch._inductor.virtualized import V, ops
from torch.utils._ordered_set import OrderedSet

from torch_opencl.inductor.codegen.kernel import OpenCLKernel
from torch_opencl.inductor.codegen.statements import Expr
from torch_opencl.inductor.layout.epilogue_source import RESULT, epilogue_source

# 64-bit words that an epilogue may add to the arguments of a GEMM kernel (matmul or convolution), within the 1024 bytes
# that every device accepts: two per buffer, one for the fault record, one per dynamic size.
MOST_WORDS = 14
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Gemm(ir.TemplateBuffer):
    """A matmul or a convolution that can be fused with following operations.

    Attributes:
        operator: its name.
    """

    def __init__(self, layout: ir.Layout, inputs: list[Any], operator: str) -> None:
        super().__init__(layout, inputs, None)
        self.operator = operator

    def references(self) -> list[str]:
        """The wrapper's expressions for the inputs: the two factors, and the tensor that is added to the result."""
        return [tensor.codegen_reference() for tensor in self.inputs]

    @abstractmethod
    def eager_lines(self) -> list[str]:
        """The wrapper's lines that compute it with the eager operator."""

    @abstractmethod
    def fused_call(self) -> tuple[str, list[str]]:
        """The function of fused.py that computes it with an epilogue, and the arguments after the epilogue's id."""


class EpilogueKernel(OpenCLKernel):
    """Collects the statements of the operations after a matmul or a convolution."""

    def __init__(self, gemm: Gemm, tiling: dict[str, sympy.Expr], **options: Any) -> None:
        super().__init__(tiling, **options)
        self.gemm = gemm

    def __enter__(self) -> "EpilogueKernel":
        """Begin with a store of the result for other kernels. It is dense, so its flat index is its memory offset."""
        super().__enter__()
        index = self.prepare_indexing(self.split_and_set_ranges(([self.numels["x"]], []))[0][0])
        load = Expr("load", (RESULT, index, torch.float32, None))
        ops.store(self.gemm.get_name(), index, self.cse.generate(self.loads, load, dtype=torch.float32))
        return self


def is_served(tensors: Any) -> bool:
    """Return whether our kernels compute a matmul or a convolution, and fusion makes it faster.

    Args:
        tensors: its inputs, a matrix or a weight last.

    Returns:
        True if both hold.
    """
    device, dtype = tensors[-1].get_device(), tensors[-1].get_dtype()
    is_ours = device.type == "opencl" and dtype in _DTYPES and all(tensor.get_dtype() == dtype for tensor in tensors)
    return is_ours and gains(device)


def gains(device: torch.device) -> bool:
    """Return whether a device computes a matmul or a convolution faster if following operations are fused.

    Args:
        device: of its inputs.

    Returns:
        True for GPU devices, unless another library is preferred. On CPU devices the host's library, which has no
        epilogues, is often faster, and the accesses that epilogues save hit the caches.
    """
    is_gpu = torch.opencl.get_device_properties(device.index or 0).device_class == "gpu"
    return is_gpu and torch.ops.torch_opencl.preferred_blas_library() in ("auto", "opencl")


def can_fuse(node1: Any, node2: Any) -> bool:
    """Return whether a matmul or a convolution, perhaps already fused, can be fused with more operations.

    Args:
        node1: the matmul or the convolution.
        node2: the operations; they must read the result in its order.

    Returns:
        False also if `node1` is not a `Gemm`.
    """
    gemm = node1.get_template_node() if node1.is_template() else None
    if not isinstance(gemm, Gemm) or node2.is_template() or node2.is_reduction():
        return False
    numel = node1.group[1][0]
    if not V.graph.sizevars.statically_known_equals(numel, node2.group[1][0]):
        return False
    nodes = (*node1.get_nodes(), *node2.get_nodes())
    epilogue = [node for node in nodes if not node.is_template()]
    deps = [dep for node in epilogue for dep in (*node.read_writes.reads, *node.read_writes.writes)]
    results = [dep for node in epilogue for dep in node.read_writes.reads if dep.name == gemm.get_name()]
    is_flat = all(_is_flat(dep, numel) for dep in results)
    buffers = {dep.name for dep in deps} - _kept_in_registers(nodes)
    return bool(results) and is_flat and 2 * len(buffers) + len(_sizes(deps)) + 1 <= MOST_WORDS


def _kept_in_registers(nodes: tuple[Any, ...]) -> set[str]:
    """Results that only the nodes of one kernel need."""
    scheduler, names = V.graph.scheduler, OrderedSet(name for node in nodes for name in node.get_operation_names())
    written = [name for node in nodes for name in node.get_buffer_names()]
    return {name for name in written if scheduler.can_buffer_be_removed_through_fusion(name, names)}


def _sizes(deps: list[Any]) -> set[sympy.Symbol]:
    """Sizes that are not known while compiling."""
    of_memory = [dep for dep in deps if isinstance(dep, MemoryDep)]
    used = [(expr, dep) for dep in of_memory for expr in (dep.index, *dep.size)]
    return {symbol for expr, dep in used for symbol in expr.free_symbols if symbol not in dep.var_names}


def _is_flat(dep: Any, numel: sympy.Expr) -> bool:
    """Return whether a buffer is read once and in its order."""
    if not isinstance(dep, MemoryDep):
        return False
    dep = dep.normalize()
    if len(dep.var_names) != 1 or dep.index != dep.var_names[0]:
        return False
    return V.graph.sizevars.statically_known_equals(dep.size[0], numel)


def generate(scheduling: Any, node: Any, epilogue: list[Any]) -> None:
    """Write a matmul or a convolution and its epilogue into the wrapper.

    Args:
        scheduling: of the graph.
        node: of the matmul or the convolution.
        epilogue: nodes of the following operations, perhaps none.
    """
    if epilogue:
        kernel = _kernel(scheduling, node, epilogue)
        with V.set_kernel_handler(kernel):
            source = epilogue_source(kernel)
            for each in (node, *epilogue):
                each.mark_run()
        name = _define(source, kernel, [node, *epilogue])
        scheduling.codegen_comment([node, *epilogue], name)
        _call(kernel, name)
        V.graph.removed_buffers |= kernel.removed_buffers
    else:
        lines = node.node.eager_lines()
        node.mark_run()
        for line in lines:
            V.graph.wrapper_code.writeline(line)
    scheduling.free_buffers_in_scheduler()


def _kernel(scheduling: Any, node: Any, epilogue: list[Any]) -> EpilogueKernel:
    numel = node.group[1][0]
    features = SIMDKernelFeatures(epilogue, numel, sympy.S.One)
    kernel = EpilogueKernel(node.node, scheduling.create_tiling([numel], [sympy.S.One]), features=features)
    scheduling.codegen_node_schedule_with_kernel(epilogue, kernel)
    kernel.codegen_body()
    return kernel


def _define(source: str, kernel: EpilogueKernel, nodes: list[Any]) -> str:
    """Write an epilogue's source into the wrapper, once.

    Returns:
        The name of the variable that holds its id.
    """
    wrapper = V.graph.wrapper_code
    key = f"epilogue {source}"
    if key not in wrapper.src_to_kernel:
        if not any(other.startswith("epilogue ") for other in wrapper.src_to_kernel):
            wrapper.header.writeline("from torch_opencl.inductor import fused as _opencl_fused")
        names = get_fused_kernel_name(nodes[1:], "original_aten")
        name = f"cl_{kernel.gemm.operator}_{names}"[:60] + f"_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[key] = name
        wrapper.header.writeline(f"{name} = _opencl_fused.register_source('''")
        for line in source.splitlines():
            wrapper.header.writeline(line)
        wrapper.header.writeline(f"''', {kernel.reports_faults})")
    return wrapper.src_to_kernel[key]


def _call(kernel: EpilogueKernel, name: str) -> None:
    wrapper = V.graph.wrapper_code
    for size in kernel.args.sizevars:
        wrapper.ensure_size_computed(size)
    buffers, scalars = kernel.parameters()
    values = [f"_opencl_fused.bits({outer})" if kind == "Real" else outer for _, kind, outer in scalars]
    values += [f"_opencl.message({message!r})" for message in kernel.messages]
    function, own = kernel.gemm.fused_call()
    outer = ", ".join(outer for _, _, outer in buffers)
    arguments = [name, *own, f"[{outer}]", f"[{', '.join(values)}]"]
    wrapper.writeline(f"_opencl_fused.{function}({', '.join(arguments)})")
