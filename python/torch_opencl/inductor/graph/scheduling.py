"""Fusion of nodes, and the definitions of kernels in the wrapper."""

import re
from typing import Any

import sympy
from torch._inductor.codegen.simd import SIMDScheduling
from torch._inductor.dependencies import MemoryDep, StarDep, WeakDep
from torch._inductor.utils import get_fused_kernel_name, get_kernel_metadata
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet

from torch_opencl.inductor.codegen.kernel import OpenCLKernel
from torch_opencl.inductor.layout.render import render

from . import epilogues

# Maximum number of buffers of a kernel. Each has an offset, and rust/ops/generated/mod.rs limits offsets and sizes
# together.
MOST_BUFFERS = 40
# Maximum number of characters of a name that Inductor makes from all operators in a kernel.
MOST_NAME = 60


class LoopKernel(OpenCLKernel):
    """A kernel with loops, unlike an epilogue of another kernel."""

    def codegen_kernel(self, name: str = "KERNEL_NAME") -> str:
        """Make the source.

        Args:
            name: of the kernel.

        Returns:
            OpenCL C, to be compiled after compiled.cl.
        """
        self.codegen_body()
        self.text = render(self, name)
        return self.text.source

    def call_kernel(self, name: str, node: Any = None, deallocate_ws: bool = True) -> None:
        """Write the launch into the wrapper."""
        wrapper = V.graph.wrapper_code
        for size in self.args.sizevars:
            wrapper.ensure_size_computed(size)
        buffers, scalars = self.parameters()
        launch = self.text.launch
        args = [*launch, *(outer for _, _, outer in buffers), *(outer for _, _, outer in scalars)]
        args += [f"_opencl.message({message!r})" for message in self.messages]
        device = V.graph.get_current_device_or_throw()
        wrapper.generate_kernel_call(name, args, device=device, triton=False, arg_types=[None] * len(args))


class OpenCLScheduling(SIMDScheduling):
    """Inductor's scheduling for flat indices, with kernels in OpenCL C."""

    kernel_type = LoopKernel

    @classmethod
    def get_backend_features(cls, device: Any) -> OrderedSet:
        """Return no optional features: scans, sorts and bucketize run as eager operators."""
        return OrderedSet()

    @classmethod
    def get_tiling_and_scores(
        cls,
        node_schedule: Any,
        numel: sympy.Expr,
        reduction_numel: sympy.Expr = sympy.S.One,
        coalesce_analysis: Any = None,
    ) -> tuple[dict[str, sympy.Expr], None]:
        """Do not tile x."""
        return cls.create_tiling([numel], [reduction_numel]), None

    def can_fuse(self, node1: Any, node2: Any) -> bool:
        """Return whether two nodes may be one kernel.

        Its buffers must fit the arguments that every device supports, and no item may write what another one reads.
        """
        if _overwrites(node1, node2):
            return False
        if node1.is_template() or node2.is_template():
            return epilogues.can_fuse(node1, node2)
        read_writes = (node1.read_writes, node2.read_writes)
        buffers = {dep.name for each in read_writes for dep in (*each.reads, *each.writes)}
        return len(buffers) <= MOST_BUFFERS and super().can_fuse(node1, node2)

    can_fuse_vertical = can_fuse
    can_fuse_horizontal = can_fuse

    def define_kernel(self, src_code: str, node_schedule: Any, kernel: LoopKernel) -> str:
        """Write a kernel's source into the wrapper.

        Args:
            src_code: OpenCL C, with KERNEL_NAME for the name.
            node_schedule: the nodes in it.
            kernel: its statements.

        Returns:
            The wrapper's variable with the kernel's id. Equal sources for one device share it.
        """
        wrapper = V.graph.wrapper_code
        device = V.graph.get_current_device_or_throw().index or 0
        key = f"{device} {src_code}"
        if key in wrapper.src_to_kernel:
            return wrapper.src_to_kernel[key]
        fused = re.sub(r"\W", "_", get_fused_kernel_name(node_schedule, "original_aten"))
        name = f"cl_{fused[:MOST_NAME]}_{wrapper.next_kernel_suffix()}"
        if kernel.reports_faults:
            name += "_faults"
        wrapper.src_to_kernel[key] = name
        origins, details = get_kernel_metadata(node_schedule, wrapper)
        text = src_code.replace("KERNEL_NAME", name)
        wrapper.header.splice(f"\n{origins}\n{details}\n")
        wrapper.header.writeline(f"_opencl.add({name!r}, '''")
        for line in text.splitlines():
            wrapper.header.writeline(line)
        wrapper.header.writeline(f"''', {device})")
        return name

    def codegen_template(
        self, template_node: Any, epilogue_nodes: list[Any], prologue_nodes: list[Any], **options: Any
    ) -> None:
        """Write a matmul or a convolution and its epilogue into the wrapper."""
        epilogues.generate(self, template_node, list(epilogue_nodes))

    def codegen_sync(self) -> None:
        """Write a wait for the device."""
        V.graph.wrapper_code.writeline("torch.opencl.synchronize()")


def _overwrites(node1: Any, node2: Any) -> bool:
    """Return whether one of two nodes mutates a buffer that the other uses in another order.

    Inductor's check compares indices of loops whose orders may differ: a kernel of `x.copy_(x.t().contiguous())` would
    write elements that other work-items have not yet read.
    """
    real_names = V.graph.scheduler.mutation_real_name
    mutated: set[str] = set()
    used: list[dict[str, set[Any]]] = []
    for node in (node1, node2):
        orders: dict[str, set[Any]] = {}
        replaced = {name for buffer in node.get_outputs() for name in buffer.get_mutations()}
        for dep in (*node.read_writes.reads, *node.read_writes.writes):
            if isinstance(dep, WeakDep) or (isinstance(dep, StarDep) and dep.name in replaced):
                # A dependency for ordering only: it reads nothing.
                continue
            name = dep.name
            while name in real_names:
                mutated.add(real_names[name])
                name = real_names[name]
            orders.setdefault(name, set()).add(_order(dep))
        used.append(orders)
    shared = used[0].keys() & used[1].keys()
    if not shared & mutated:
        return False
    return any(None in orders or len(orders) > 1 for orders in (used[0][name] | used[1][name] for name in shared))


def _order(dep: Any) -> tuple[Any, Any] | None:
    """The order in which a buffer is accessed; None if it is unknown."""
    if not isinstance(dep, MemoryDep):
        return None
    dep = dep.normalize()
    return dep.index, dep.size
