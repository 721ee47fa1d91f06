"""The source of an epilogue of a matmul or a convolution: functions of one result, and of sixteen results on CPUs."""

from torch_opencl.inductor.codegen.dtypes import STORAGE
from torch_opencl.inductor.codegen.kernel import OpenCLKernel
from torch_opencl.inductor.codegen.lanes import Lanes
from torch_opencl.inductor.codegen.statements import Expr, Value
from torch_opencl.inductor.codegen.target import Target

from .body import Body
from .render import live, scalar_fields, scalar_reads

# The buffer name for loads of the matmul's or convolution's result, which is a parameter of the functions.
RESULT = "result"


def epilogue_source(kernel: OpenCLKernel) -> str:
    """Make the source of an epilogue of a matmul or a convolution.

    Args:
        kernel: its statements.

    Returns:
        The functions that rust/ops/matmul/epilogue.cl calls, in OpenCL C.
    """
    return _Functions(kernel, Target.current()).source()


class _EpilogueLanes(Lanes):
    def _op_load(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        return RESULT if expr.args[0] == RESULT else super()._op_load(expr, target, width, wide)


class _Functions(Body):
    def __init__(self, kernel: OpenCLKernel, target: Target) -> None:
        super().__init__(kernel, [live(phase, kernel.removed_buffers) for phase in kernel.phases], target)
        self.lanes = _EpilogueLanes(kernel, self.phases, self.prefix, self.length, None)
        self.width = self._width()

    def source(self) -> str:
        # The operands come last, because the functions determine which sizes they use.
        functions = self._one()
        if self.target.is_cpu:
            # A matmul with narrow tiles has narrower vectors.
            functions += f"#if VEC == {self.target.vector_width}\n{self._lanes()}#endif\n"
        return self._operands() + functions

    def _operands(self) -> str:
        """The struct of the operands, the kernel parameters, and the initializer of the struct from the parameters."""
        buffers, scalars = self.kernel.parameters()
        fields = [f"long {inner}_offset;" for inner, _, _ in buffers] + scalar_fields(scalars)
        fields += [f"long message{i};" for i in range(len(self.kernel.messages))]
        pointers = [f"__global {STORAGE[dtype].pointer} *" for _, dtype, _ in buffers]
        faults = ["__global uchar *faults"] if self.kernel.reports_faults else []
        named = list(zip(pointers, (inner for inner, _, _ in buffers), strict=True))
        parameters = [*(f"{kind}{inner}_memory" for kind, inner in named), "const FusedScalars fused_scalars", *faults]
        members = [f"{kind}{inner}; " for kind, inner in named] + [f"{fault}; " for fault in faults]
        values = [
            f"({kind})((__global uchar *){inner}_memory + fused_scalars.{inner}_offset), " for kind, inner in named
        ]
        values += ["faults, "] if faults else []
        return (
            f"typedef struct {{ {' '.join(fields) or 'long unused;'} }} FusedScalars;\n"
            f"typedef struct {{ {''.join(members)}FusedScalars scalars; }} Fused;\n"
            f"#define FUSED_PARAMETERS , {', '.join(parameters)}\n"
            f"#define FUSED_OPERANDS {{{''.join(values)}fused_scalars}}\n"
        )

    def _unpacked_operands(self) -> None:
        buffers, scalars = self.kernel.parameters()
        for inner, dtype, _ in buffers:
            self.line(f"__global {STORAGE[dtype].pointer} *const {inner} = fused->{inner};")
        if self.kernel.reports_faults:
            self.line("__global uchar *const faults = fused->faults;")
        self.line("const FusedScalars args = fused->scalars;")
        for line in scalar_reads(scalars):
            self.line(line)

    def _one(self) -> str:
        body = self._taken(lambda: (self.entries("x", "xindex"), self.statements(self.phases[0].statements, 1)))
        return "OUTLINED void fused_one(const Fused *fused, long xindex, float result) {\n" + body + "}\n"

    def _lanes(self) -> str:
        width = self.target.vector_width
        head = f"INLINE void fused_lanes(const Fused *fused, long xindex, float{width} result) {{\n"
        each = (
            f"union {{ float{width} v; float lane[{width}]; }} lanes = {{result}};\n"
            f"for (int l = 0; l < {width}; l++) fused_one(fused, xindex + l, lanes.lane[l]);\n"
        )
        if self.width != width:
            return head + each + "}\n"

        def lanes() -> None:
            self.line(f"const long length = {self.divisor(self.length)};")
            self.line("const long xrow = xindex / length, i = xindex - xrow * length;")
            with self.block(f"if (i + {width} > length)"):
                self.out.splice(each)
                self.line("return;")
            self.entries("x", "xrow", is_lane=False)
            self.entries("x", "xrow", is_lane=True)
            self.statements(self.phases[0].statements, width)

        return head + self._taken(lanes) + "}\n"

    def _taken(self, write) -> str:
        """The body that `write` writes, after the declarations of the operands."""
        self.out.clear()
        with self.out.indent():
            write()
        body = self.out.getvalue()
        self.out.clear()
        with self.out.indent():
            self._unpacked_operands()
            self.out.splice(self.lanes.declared())
        return self.out.getvalue() + body
