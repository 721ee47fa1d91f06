"""The source of a kernel: OpenCL C in explicit vectors for CPU devices, with an element per work-item for GPU devices.

CPU devices: lanes of a vector lie along one range. Without reductions it is x; with reductions it is the range along
which more of the memory is contiguous. The index of that range is `row * length + i`, and vectors run along i. A
work-item takes a block of tasks: pieces of rows of x, squares of x if tensors are transposed, or, if lanes lie along
the reduction, single values of x.

GPU devices: kernels have one lane. A work-item takes one x and loops over the reduction. If the reduction is long and
the contiguous range, a work-group takes one x and joins its items' results in local memory. A group also takes a tile
of transposed tensors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import sympy
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.scheduler import OutputNode
from torch._inductor.virtualized import V

from torch_opencl.inductor.codegen.dtypes import STORAGE
from torch_opencl.inductor.codegen.kernel import OpenCLKernel
from torch_opencl.inductor.codegen.statements import Phase
from torch_opencl.inductor.codegen.target import Target

from . import short_rows
from .body import GROUP, Body, hint
from .columns import Columns, Items, Pieces
from .rows import GroupRows, Rows
from .tiles import GroupTiles, Tiles, turned

# A launch with at most this many elements may be deferred until others start.
SHORT = 4096
# The shortest reduction for which a group is worthwhile on GPUs.
SHORTEST_GROUP_REDUCTION = 64
# With fewer x than this, lanes lie along the reduction.
FEW_COLUMNS = 16
# CPUs use non-temporal stores for outputs of at least this many bytes that nothing in the graph reads again.
NON_TEMPORAL_BYTES = 16 << 20


@dataclass
class Text:
    """A kernel's source and launch.

    Attributes:
        source: OpenCL C.
        launch: the first arguments of a launch, as Python code of the wrapper: global size, local size, and 1 if the
            launch may be deferred until others start.
    """

    source: str
    launch: tuple[str, str, str]


def render(kernel: OpenCLKernel, name: str) -> Text:
    """Make the source of a kernel.

    Args:
        kernel: its statements.
        name: of the kernel function.

    Returns:
        The source and the arguments of its launch.
    """
    target = Target.current()
    if target.is_cpu:
        short_rows.join(kernel, target.vector_width)
    phases = [live(phase, kernel.removed_buffers) for phase in kernel.phases]
    body = _body(kernel, phases, target)
    if target.is_cpu:
        body.lanes.streamed = _streamed(phases)
    with body.out.indent():
        body.write()
    # After the body, which may have used more sizes.
    source = IndentedBuffer()
    source.splice(_signature(kernel, name, target))
    with source.indent():
        source.splice("".join(body.locals) + body.lanes.declared())
        source.splice(_unpacked(kernel))
    source.splice(body.out)
    source.writeline("}")
    reduction = kernel.features.reduction_numel if kernel.features.is_reduction() else sympy.S.One
    work = hint(kernel.numels["x"] * reduction)
    local = 1 if target.is_cpu else GROUP
    return Text(source.getvalue(), (body.global_size(work), str(local), str(int(work <= SHORT))))


# --- choices


def _body(kernel: OpenCLKernel, phases: list[Phase], target: Target) -> Body:
    if not any(phase.is_loop for phase in phases):
        which = turned(kernel, phases)
        if which is not None:
            tiles = (Tiles if target.is_cpu else GroupTiles)(kernel, phases, target, which)
            if tiles.width > 1 or not target.is_cpu:
                return tiles
        return (Pieces if target.is_cpu else Items)(kernel, phases, target)
    if _is_along_x(kernel, phases, target):
        return (Columns if target.is_cpu else Items)(kernel, phases, target)
    return (Rows if target.is_cpu else GroupRows)(kernel, phases, target)


def _is_along_x(kernel: OpenCLKernel, phases: list[Phase], target: Target) -> bool:
    """Return whether lanes lie along x and not along the reduction."""
    if not target.is_cpu and hint(kernel.features.reduction_numel) < SHORTEST_GROUP_REDUCTION:
        return True
    indices = [
        arg
        for phase in phases
        for statement in phase.statements
        if statement.expr.op in ("load", "store")
        for arg in statement.expr.args[1:2]
    ]
    named = set(kernel.named)
    contiguous = {}
    for prefix in ("x", "r0_"):
        length = kernel.inner_length(prefix)
        steps = [(index, kernel.lane_stride(index, prefix, named, length)) for index in indices]
        contiguous[prefix] = sum(_weight(kernel, index) for index, step in steps if step == 1)
    return contiguous["x"] > contiguous["r0_"] and hint(kernel.numels["x"]) >= FEW_COLUMNS


def _weight(kernel: OpenCLKernel, index: sympy.Expr) -> int:
    """The weight of an access: the number of its elements, without indirect indices."""
    nodes = kernel.range_tree_nodes
    return math.prod(hint(nodes[symbol].length) for symbol in index.free_symbols if symbol in nodes)


def _streamed(phases: list[Phase]) -> set[str]:
    """Pointers to large outputs that nothing in the graph reads."""
    statements = [statement for phase in phases for statement in (*phase.statements, *phase.after)]
    loaded = {statement.expr.args[0] for statement in statements if statement.expr.op == "load"}
    streamed = set()
    for statement in statements:
        if statement.expr.op != "store" or statement.expr.args[0] in loaded:
            continue
        buffer = V.graph.scheduler.name_to_buf.get(statement.buffer)
        if buffer is None or not all(isinstance(user.node, OutputNode) for user in buffer.users):
            continue
        size = hint(V.graph.get_numel(statement.buffer)) * V.graph.get_dtype(statement.buffer).itemsize
        if size >= NON_TEMPORAL_BYTES:
            streamed.add(statement.expr.args[0])
    return streamed


# --- source


def _signature(kernel: OpenCLKernel, name: str, target: Target) -> str:
    buffers, scalars = kernel.parameters()
    fields = [f"long {inner}_offset;" for inner, _, _ in buffers]
    fields += scalar_fields(scalars)
    fields += [f"long message{i};" for i in range(len(kernel.messages))]
    if not fields:
        fields = ["long unused;"]
    params = [f"__global {STORAGE[dtype].pointer} *{inner}_memory" for inner, dtype, _ in buffers]
    params.append(f"const {name}_args args")
    if kernel.reports_faults:
        params.append("__global uchar *faults")
    group = "" if target.is_cpu else f"__attribute__((reqd_work_group_size({GROUP}, 1, 1))) "
    struct = f"typedef struct {{ {' '.join(fields)} }} {name}_args;\n"
    return f"{struct}__kernel {group}void {name}({', '.join(params)}) {{\n"


def _unpacked(kernel: OpenCLKernel) -> str:
    buffers, scalars = kernel.parameters()
    lines = []
    for inner, dtype, _ in buffers:
        kind = STORAGE[dtype].pointer
        address = f"(__global {kind} *)((__global uchar *){inner}_memory + args.{inner}_offset)"
        lines.append(f"__global {kind} *const {inner} = {address};\n")
    return "".join([*lines, *(f"{line}\n" for line in scalar_reads(scalars))])


def scalar_fields(scalars: Sequence[tuple[str, str, str]]) -> list[str]:
    """Declare scalars in the struct of a kernel's arguments, of 64 bits each.

    Args:
        scalars: from a kernel's :meth:`parameters`.

    Returns:
        The fields. On devices without double a Real is passed as bits.
    """
    return [f"{'RealArgument' if kind == 'Real' else kind} {inner};" for inner, kind, _ in scalars]


def scalar_reads(scalars: Sequence[tuple[str, str, str]]) -> list[str]:
    """Declare variables with the values of these fields of a struct `args`.

    Args:
        scalars: from a kernel's :meth:`parameters`.

    Returns:
        The lines.
    """
    reads = {"Real": "REAL_OF(args.{})"}
    return [f"const {kind} {inner} = {reads.get(kind, 'args.{}').format(inner)};" for inner, kind, _ in scalars]


def live(phase: Phase, removed: set[str]) -> Phase:
    """A phase without stores to unused buffers."""
    keep = [
        type(phase.statements)(statement for statement in statements if statement.buffer not in removed)
        for statements in (phase.statements, phase.after)
    ]
    return Phase(phase.is_loop, *keep)
