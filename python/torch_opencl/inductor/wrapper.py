"""The wrapper: the Python function that allocates, launches kernels and calls eager operators."""

from typing import Any

import torch
from torch._inductor import config
from torch._inductor.codegen.common import DeviceOpOverrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.virtualized import V

from .runtime import dtype_code


class OpenCLOpOverrides(DeviceOpOverrides):
    """Names that wrappers use."""

    def import_get_raw_stream_as(self, name: str) -> str:
        """Define a function that returns an unused stream handle: launches find the current stream themselves."""
        return f"def {name}(_): return 0"

    def set_device(self, device_idx: int) -> str:
        """Make a device current."""
        return "pass" if _is_alone() else f"torch.opencl.set_device({device_idx})"

    def synchronize(self) -> str:
        """Wait for the device."""
        return "torch.opencl.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        """Make a device current for a block."""
        return "_opencl_nothing" if _is_alone() else f"torch.opencl.device({device_idx})"


def _is_alone() -> bool:
    """Return whether there is one device, which is always current. The cache key of graphs has the device count."""
    return torch.opencl.device_count() == 1


class _Calls:
    """Launches, in wrappers of graphs and of their parts."""

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: list[str], *, device: Any = None, **options: Any
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if device.type != "opencl":
            _refuse_tensors_on_opencl(call_args, device)
            super()._generate_kernel_call_helper(kernel_name, call_args, device=device, **options)
            return
        self.writeline(f"_opencl_launch({', '.join([kernel_name, *call_args])})")

    def make_allocation(self, name: str, device: torch.device, dtype: torch.dtype, *shapes: Any, **more: Any) -> str:
        """Write an allocation: its shape, its stride and, if it differs, the allocated shape."""
        if device.type != "opencl" or device.index is None or config.test_configs.track_memory_lifecycle:
            return super().make_allocation(name, device, dtype, *shapes, **more)
        given = dict(zip(("shape", "stride", "allocation_shape"), shapes, strict=False)) | more
        sizes, strides = (self.codegen_python_shape_tuple(given[name]) for name in ("shape", "stride"))
        larger = given.get("allocation_shape")
        allocated = sizes if larger is None else self.codegen_python_shape_tuple(larger)
        call = f"{name} = _opencl_empty({allocated}, {strides}, {dtype_code(dtype)}, {device.index})"
        return call if allocated == sizes else f"{call}.as_strided({sizes}, {strides})"


def _refuse_tensors_on_opencl(call_args: list[str], device: torch.device) -> None:
    """Refuse a kernel of another device that reads a tensor on opencl: it would misinterpret the address."""
    for name in call_args:
        tensor = V.graph.graph_inputs.get(name) or V.graph.try_get_buffer(name)
        found = tensor.get_device() if hasattr(tensor, "get_device") else None
        if found is not None and found.type == "opencl":
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but a compiled operator on {device} reads a tensor on "
                f"{found}. Move one of them, for example by tensor.to({str(found)!r})."
            )


class OpenCLWrapper(_Calls, PythonWrapperCodegen):
    """The wrapper of a graph."""

    @staticmethod
    def create(is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None) -> Any:
        """Make the wrapper of a graph or of a part of one."""
        if is_subgraph:
            return OpenCLSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return OpenCLWrapper()

    def write_header(self) -> None:
        """Write the imports."""
        super().write_header()
        self.header.splice(
            """
            from torch_opencl.inductor.runtime import Library as _OpenCLLibrary, launch as _opencl_launch
            from torch_opencl.inductor.runtime import empty_strided as _opencl_empty, nothing as _opencl_nothing
            _opencl = _OpenCLLibrary()
            """,
            strip=True,
        )

    def write_async_compile_wait(self) -> None:
        """Write the call that builds the graph's kernels."""
        self.prefix.splice("\n_opencl.build(globals())\n")
        super().write_async_compile_wait()


class OpenCLSubgraphWrapper(_Calls, SubgraphPythonWrapperCodegen):
    """The wrapper of a part of a graph."""


_NO_CPP = (
    "torch.compile for opencl has no wrapper in C++ and no ahead-of-time compilation: set "
    "torch._inductor.config.cpp_wrapper = False, and use torch.compile instead of aot_compile."
)


class CppWrapper:
    """The refusal of a wrapper in C++."""

    # PyTorch reads it before it makes a wrapper.
    supports_caching = False

    def __init__(self, *args: Any, **options: Any) -> None:
        raise NotImplementedError(_NO_CPP)

    @staticmethod
    def create(*args: Any, **options: Any) -> Any:
        """Refuse."""
        raise NotImplementedError(_NO_CPP)
