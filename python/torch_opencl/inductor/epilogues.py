"""Epilogues: element-wise operations behind a matmul, computed in the matmul's own kernel.

A matmul is lowered to a template, to which the scheduler fuses the operations that follow. Their statements become
functions, which our GEMM kernels call with each result (rust/ops/matmul/epilogue.cl), instead of storing it. Where
nothing is fused, the wrapper calls the operator of eager mode, as it does for all other matmuls.
"""

from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
from torch._inductor.dependencies import MemoryDep
from torch._inductor.kernel.mm_common import mm_args
from torch._inductor.utils import get_fused_kernel_name
from torch._inductor.virtualized import V, ops

from .epilogue_text import RESULT, epilogue_text
from .kernel import OpenCLKernel
from .statements import Expr

# Words of 64 bits that the arguments of the GEMM kernels leave of those that every device takes: a buffer has two of
# them, the record of faults and a size one each.
MOST_WORDS = 14
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Matmul(ir.TemplateBuffer):
    """A matmul that can be fused with what follows.

    Attributes:
        operator: mm, bmm, addmm or baddbmm.
        scales: alpha and beta of the latter two.
    """

    def __init__(self, layout: ir.Layout, inputs: list[Any], operator: str, scales: dict[str, float]) -> None:
        super().__init__(layout, inputs, None)
        self.operator = operator
        self.scales = scales

    def references(self) -> list[str]:
        """The wrapper's expressions for the inputs: the matrices, and what is added to their matmul."""
        return [tensor.codegen_reference() for tensor in self.inputs]


class EpilogueKernel(OpenCLKernel):
    """Collects the statements of the operations behind a matmul."""

    def __init__(self, matmul: Matmul, tiling: dict[str, sympy.Expr], **options: Any) -> None:
        super().__init__(tiling, **options)
        self.matmul = matmul

    def __enter__(self) -> "EpilogueKernel":
        """Begin with the matmul's result, which others may need, too."""
        super().__enter__()
        index = self.prepare_indexing(self.split_and_set_ranges(([self.numels["x"]], []))[0][0])
        load = Expr("load", (RESULT, index, torch.float32, None))
        ops.store(self.matmul.get_name(), index, self.cse.generate(self.loads, load, dtype=torch.float32))
        return self


def lowered(operator: str, matrices: tuple[Any, Any], added: tuple[Any, ...], scales: dict[str, float]) -> Any:
    """Lower a matmul to a template.

    Args:
        operator: mm, bmm, addmm or baddbmm.
        matrices: both of them, or batches of them.
        added: to their matmul; broadcast to its shape.
        scales: alpha and beta, where something is added.

    Returns:
        The result; None where the matmul stays as it is.
    """
    if not is_served((*added, *matrices)) or not all(isinstance(scale, (int, float)) for scale in scales.values()):
        return None
    _, _, _, layout, *inputs = mm_args(*matrices, *added)
    return ir.TensorBox.create(Matmul(layout, inputs, operator, scales))


def is_served(tensors: Any) -> bool:
    """Tell whether our own kernels compute a matmul, and gain by what is fused with it.

    Args:
        tensors: its inputs.

    Returns:
        True where they do.
    """
    device, dtype = tensors[-1].get_device(), tensors[-1].get_dtype()
    is_ours = device.type == "opencl" and dtype in _DTYPES and all(tensor.get_dtype() == dtype for tensor in tensors)
    return is_ours and gains(device)


def gains(device: torch.device) -> bool:
    """Tell whether a device computes a matmul faster with what follows it.

    Args:
        device: of the matmul.

    Returns:
        True for GPU devices, unless another library is asked for. On CPU devices the host's library is often faster,
        which knows no epilogues, and what they spare is in the caches.
    """
    is_gpu = torch.opencl.get_device_properties(device.index or 0).device_class == "gpu"
    return is_gpu and torch.ops.torch_opencl.preferred_blas_library() in ("auto", "opencl")


def can_fuse(node1: Any, node2: Any) -> bool:
    """Tell whether a matmul, and perhaps what follows it, and other operations may be one kernel.

    Args:
        node1: the matmul.
        node2: the operations; they read the result in its own order.

    Returns:
        False, too, where `node1` is no matmul of ours.
    """
    matmul = node1.get_template_node() if node1.is_template() else None
    if not isinstance(matmul, Matmul) or node2.is_template() or node2.is_reduction():
        return False
    numel = node1.group[1][0]
    if not V.graph.sizevars.statically_known_equals(numel, node2.group[1][0]):
        return False
    nodes = (*node1.get_nodes(), *node2.get_nodes())
    epilogue = [node for node in nodes if not node.is_template()]
    deps = [dep for node in epilogue for dep in (*node.read_writes.reads, *node.read_writes.writes)]
    results = [dep for node in epilogue for dep in node.read_writes.reads if dep.name == matmul.get_name()]
    is_flat = all(_is_flat(dep, numel) for dep in results)
    words = 2 * len({dep.name for dep in deps}) + len(_sizes(deps)) + 1
    return bool(results) and is_flat and words <= MOST_WORDS


def _sizes(deps: list[Any]) -> set[sympy.Symbol]:
    """Sizes that are not known while compiling."""
    of_memory = [dep for dep in deps if isinstance(dep, MemoryDep)]
    used = [(expr, dep) for dep in of_memory for expr in (dep.index, *dep.size)]
    return {symbol for expr, dep in used for symbol in expr.free_symbols if symbol not in dep.var_names}


def _is_flat(dep: Any, numel: sympy.Expr) -> bool:
    """Tell whether a buffer is read once and in its order."""
    if not isinstance(dep, MemoryDep):
        return False
    dep = dep.normalize()
    if len(dep.var_names) != 1 or dep.index != dep.var_names[0]:
        return False
    return V.graph.sizevars.statically_known_equals(dep.size[0], numel)


def generate(scheduling: Any, node: Any, epilogue: list[Any]) -> None:
    """Write a matmul, and what is fused with it, into the wrapper.

    Args:
        scheduling: that of the graph.
        node: of the matmul.
        epilogue: of the operations behind it, perhaps none.
    """
    if epilogue:
        kernel = _kernel(scheduling, node, epilogue)
        with V.set_kernel_handler(kernel):
            text = epilogue_text(kernel)
            for each in (node, *epilogue):
                each.mark_run()
        name = _define(text, kernel, [node, *epilogue])
        scheduling.codegen_comment([node, *epilogue], name)
        _call(kernel, name)
        V.graph.removed_buffers |= kernel.removed_buffers
    else:
        node.mark_run()
        arguments = [*_in_order(node.node), *(f"{name}={value!r}" for name, value in node.node.scales.items())]
        call = f"extern_kernels.{node.node.operator}({', '.join(arguments)}, out={node.node.codegen_reference()})"
        V.graph.wrapper_code.writeline(call)
    scheduling.free_buffers_in_scheduler()


def _in_order(matmul: Matmul) -> list[str]:
    """The inputs in the operator's order, in which what is added comes first."""
    references = matmul.references()
    return [*references[2:], *references[:2]]


def _kernel(scheduling: Any, node: Any, epilogue: list[Any]) -> EpilogueKernel:
    numel = node.group[1][0]
    features = SIMDKernelFeatures(epilogue, numel, sympy.S.One)
    kernel = EpilogueKernel(node.node, scheduling.create_tiling([numel], [sympy.S.One]), features=features)
    scheduling.codegen_node_schedule_with_kernel(epilogue, kernel)
    kernel.codegen_body()
    return kernel


def _define(text: str, kernel: EpilogueKernel, nodes: list[Any]) -> str:
    """Write the text into the wrapper, once.

    Returns:
        The name of its number.
    """
    wrapper = V.graph.wrapper_code
    key = f"epilogue {text}"
    if key not in wrapper.src_to_kernel:
        if not any(other.startswith("epilogue ") for other in wrapper.src_to_kernel):
            wrapper.header.writeline("from torch_opencl.inductor import fused as _opencl_fused")
        names = get_fused_kernel_name(nodes[1:], "original_aten")
        name = f"cl_{kernel.matmul.operator}_{names}"[:60] + f"_{wrapper.next_kernel_suffix()}"
        wrapper.src_to_kernel[key] = name
        wrapper.header.writeline(f"{name} = _opencl_fused.text('''")
        for line in text.splitlines():
            wrapper.header.writeline(line)
        wrapper.header.writeline(f"''', {kernel.reports_faults})")
    return wrapper.src_to_kernel[key]


def _call(kernel: EpilogueKernel, name: str) -> None:
    wrapper, matmul = V.graph.wrapper_code, kernel.matmul
    for size in kernel.args.sizevars:
        wrapper.ensure_size_computed(size)
    buffers, scalars = kernel.parameters()
    values = [f"_opencl_fused.bits({outer})" if kind == "double" else outer for _, kind, outer in scalars]
    values += [f"_opencl.message({message!r})" for message in kernel.messages]
    a, b, *added = matmul.references()
    scales = [repr(matmul.scales.get(scale, 1)) for scale in ("beta", "alpha")]
    outer = ", ".join(outer for _, _, outer in buffers)
    arguments = [name, a, b, *(added or ["None"]), *scales, f"[{outer}]", f"[{', '.join(values)}]"]
    wrapper.writeline(f"_opencl_fused.matmul({', '.join(arguments)})")
