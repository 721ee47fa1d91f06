"""Registers the device with Inductor."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from . import names
from .graph.eager_kernels import limit_atomic_additions


def add_to_gpu_types(module: Any) -> None:
    """Make Inductor treat opencl as a device with separate memory.

    Args:
        module: torch._inductor.utils.
    """
    if "opencl" not in module.GPU_TYPES:
        # get_gpu_type() caches its result and expects a single GPU type: if another GPU type is available, keep that.
        if not any(getattr(torch, name).is_available() for name in module.GPU_TYPES):
            module.get_gpu_type.cache_clear()
        else:
            module.get_gpu_type()
        module.GPU_TYPES.append("opencl")
        is_big_gpu = module.is_big_gpu

        def is_big(index_or_device: Any = 0) -> bool:
            # Inductor would warn that the device is too small for Triton's matmuls.
            is_ours = isinstance(index_or_device, torch.device) and index_or_device.type == "opencl"
            return False if is_ours else is_big_gpu(index_or_device)

        module.is_big_gpu = is_big
        limit_atomic_additions(module)


def keep_out_of_graphs(module: Any) -> None:
    """Make Dynamo call the functions of this package instead of tracing them, except layers of users' models.

    Args:
        module: torch._dynamo.trace_rules.
    """
    package = Path(__file__).parents[1]
    module.SKIP_DIRS.extend(str(path) for path in package.iterdir() if path.name != "quantized.py")
    module._recompile_re()


def register_interface(module: Any) -> None:
    """Register the device interface with Dynamo.

    Args:
        module: torch._dynamo.device_interface.
    """
    from . import interface

    interface.register()


def allow_without_triton(module: Any) -> None:
    """Make the scheduler use our backend, for which it would require Triton.

    Args:
        module: torch._inductor.scheduler.
    """
    create = module.Scheduler.create_backend

    def create_backend(self: Any, device: torch.device) -> Any:
        if device.type != "opencl":
            return create(self, device)
        module.V.graph.add_device_info(device)
        return module.get_scheduling_for_device("opencl")(self)

    module.Scheduler.create_backend = create_backend


def leave_to_eager(module: Any) -> None:
    """Use eager operators for operations without a template and dtypes without a type in OpenCL C.

    The code generator would raise an error for them later.

    Args:
        module: torch._inductor.lowering.
    """
    from .codegen.dtypes import STORAGE
    from .codegen.ops import without_templates
    from .graph.eager_kernels import eager_where, overloads

    # The lowering of `_weight_int8pack_mm` needs its scales in memory.
    for op in overloads(module, (*without_templates(), "_weight_int8pack_mm")):
        module.lowerings[op] = eager_where(module, op, lambda device: True)
    is_unsupported = module.unsupported_input_tensor

    def unsupported_input_tensor(t: torch.Tensor, node: Any = None) -> bool:
        return is_unsupported(t, node) or (t.device.type == "opencl" and t.dtype not in STORAGE)

    module.unsupported_input_tensor = unsupported_input_tensor


def register_benchmarker(module: Any) -> None:
    """Let Inductor time its candidates: in wall-clock time, from an idle device to the end of the work.

    Args:
        module: torch._inductor.runtime.benchmarking.
    """

    def benchmark(self: Any, function: Any, *, warmup: int, rep: int, **options: Any) -> float:
        def run_to_its_end() -> None:
            function()
            torch.opencl.synchronize()

        torch.opencl.synchronize()
        return self.benchmark_cpu(run_to_its_end, warmup=warmup, rep=rep)

    if hasattr(module, "register_benchmarker"):
        module.register_benchmarker("opencl", benchmark, override=True)


def register_backend(module: Any) -> None:
    """Register our code generator, which needs most of PyTorch's compiler.

    Args:
        module: torch._inductor.graph, which has imported that.
    """
    from torch._inductor import choices
    from torch._inductor.codegen import common, simd, wrapper as wrappers
    from torch._inductor.custom_graph_pass import CustomGraphModulePass

    for needed in (choices, common, simd, wrappers):
        names.check(needed)
    from . import wrapper
    from .graph import flex_attention
    from .graph.scheduling import OpenCLScheduling
    from .graph.weights import multiply_as_stored

    class Rewrite(CustomGraphModulePass):
        """Changes graphs; its uuid is part of the key under which Inductor caches them."""

        def __call__(self, gm: torch.fx.GraphModule) -> None:
            """Change a graph."""
            flex_attention.inline(gm)
            multiply_as_stored(gm)

        def uuid(self) -> Any:
            return _fingerprint()

    common.register_device_op_overrides("opencl", wrapper.OpenCLOpOverrides())
    common.register_backend_for_device(
        "opencl", OpenCLScheduling, wrapper.OpenCLWrapper, wrapper.CppWrapper, None, Rewrite()
    )


def _fingerprint() -> str:
    """Everything that a generated kernel depends on, besides its graph."""
    digest = hashlib.sha256(torch.ops.torch_opencl.preferred_blas_library().encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    for index in range(torch.opencl.device_count()):
        digest.update(repr(vars(torch.opencl.get_device_properties(index))).encode())
    return digest.hexdigest()


def allow_graphs(module: Any) -> None:
    """Allow graphs of code for one opencl device, as of code for one CUDA device.

    Args:
        module: torch._inductor.cudagraph_utils.
    """
    check = module.check_multiple_devices_or_any_cpu_nodes

    def check_devices(device_node_mapping: dict[torch.device, Any]) -> str | None:
        reason = check(device_node_mapping)
        is_ours = len(device_node_mapping) == 1 and next(iter(device_node_mapping)).type == "opencl"
        return None if is_ours else reason

    module.check_multiple_devices_or_any_cpu_nodes = check_devices


def move_optimizer_state(module: Any) -> None:
    """Move an optimizer's scalar state from the CPU to the parameters' device; Dynamo moves only ``step``.

    NAdam also has ``mu_product``: an operator of the compiled step would read it and ``step`` from two devices.

    Args:
        module: torch._dynamo.variables.optimizer.
    """
    move = module.OptimizerVariable.move_step_if_cpu

    def move_if_cpu(self: Any) -> None:
        move(self)
        for parameter, state in self.value.state.items():
            if parameter.device.type != "opencl":
                continue
            for name, value in state.items():
                if isinstance(value, torch.Tensor) and value.is_cpu and value.dim() == 0:
                    state[name] = value.to(parameter.device)

    module.OptimizerVariable.move_step_if_cpu = move_if_cpu


def make_graphs(module: Any) -> None:
    """Replay the parts of compiled graphs that compute on opencl with our graphs.

    Args:
        module: torch._inductor.compile_fx.
    """
    cudagraphify = module.cudagraphify

    def graphify(model: Any, static_input_idxs: Any = (), **options: Any) -> Any:
        chosen: Any = None

        def run(inputs: list[Any]) -> Any:
            nonlocal chosen
            if chosen is None:
                types = {given.device.type for given in inputs if isinstance(given, torch.Tensor)}
                if "opencl" not in types and torch.cuda.is_available():
                    # Without an input on either device it is unknown which one the graph is for.
                    chosen = cudagraphify(model, static_input_idxs, **options) if "cuda" in types else model
                else:
                    from .replay import Replayed

                    mutated = options.get("mutated_input_idxs", ())
                    skip = module.log_cudagraph_skip_and_bump_counter
                    chosen = Replayed(model, options["device_index"], static_input_idxs, mutated, skip)
            return chosen(inputs)

        return run

    module.cudagraphify = graphify


def leave_generations_to_cuda(module: Any) -> None:
    """Skip CUDA's bookkeeping of passes for our graphs.

    Args:
        module: torch._inductor.output_code.
    """
    handle = module.maybe_handle_backward_generation

    def handle_backward(compiled_graph: Any, boxed_forward_device_index: Any) -> None:
        if "opencl" not in compiled_graph.device_types:
            handle(compiled_graph, boxed_forward_device_index)

    module.maybe_handle_backward_generation = handle_backward
