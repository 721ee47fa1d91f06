"""The names of PyTorch's compiler and process groups that this package changes or builds on."""

from types import ModuleType

__all__ = ["NEEDED", "check"]

# Names by module; a dotted name is an attribute of a name.
NEEDED: dict[str, tuple[str, ...]] = {
    "torch._decomp.decompositions": ("upsample_compute_output_size",),
    "torch._dynamo.device_interface": ("DeviceInterface", "register_interface_for_device"),
    "torch._dynamo.trace_rules": ("SKIP_DIRS", "_recompile_re"),
    "torch._dynamo.variables.optimizer": ("OptimizerVariable.move_step_if_cpu",),
    "torch._inductor.choices": ("InductorChoices.reduction_split_factor",),
    "torch._inductor.codegen.common": (
        "DeviceOpOverrides",
        "register_backend_for_device",
        "register_device_op_overrides",
    ),
    "torch._inductor.codegen.simd": (
        "SIMDKernel.check_bounds",
        "SIMDKernel.codegen_body",
        "SIMDKernel.codegen_iteration_ranges_entry",
        "SIMDKernel.finalize_indexing",
        "SIMDKernel.prepare_indexing",
        "SIMDKernel.want_no_x_dim",
        "SIMDScheduling.create_tiling",
        "SIMDScheduling.get_tiling_and_scores",
    ),
    "torch._inductor.codegen.wrapper": (
        "PythonWrapperCodegen._generate_kernel_call_helper",
        "PythonWrapperCodegen.codegen_python_shape_tuple",
        "PythonWrapperCodegen.create",
        "PythonWrapperCodegen.make_allocation",
        "PythonWrapperCodegen.write_async_compile_wait",
        "PythonWrapperCodegen.write_header",
        "SubgraphPythonWrapperCodegen",
    ),
    "torch._inductor.compile_fx": ("compile_fx", "compile_fx_inner"),
    "torch._inductor.decomposition": ("decompositions",),
    "torch._inductor.graph": ("V.set_choices_handler", "config.layout_optimization"),
    "torch._inductor.lowering": (
        "Reduction.create",
        "TensorBox",
        "V",
        "_make_reduction_inner",
        "constrain_to_fx_strides",
        "fallback_handler",
        "get_constant_value",
        "lowerings",
        "require_contiguous",
    ),
    "torch._inductor.scheduler": ("Scheduler.create_backend", "V", "get_scheduling_for_device"),
    "torch._inductor.utils": (
        "GPU_TYPES",
        "get_gpu_type.cache_clear",
        "is_big_gpu",
        "needs_fallback_due_to_atomic_add_limitations",
    ),
    "torch._subclasses.fake_impls": ("op_implementations_dict",),
    "torch.distributed.distributed_c10d": (
        "Backend.backend_capability",
        "Backend.default_device_backend_map",
        "ProcessGroup._register_backend",
    ),
}


def check(module: ModuleType) -> None:
    """Check that a module has the names.

    Args:
        module: one of PyTorch's; nothing is checked in others.

    Raises:
        AttributeError: a name is missing; the message has module and name.
    """
    for name in NEEDED.get(module.__name__, ()):
        owner = module
        for part in name.split("."):
            if not hasattr(owner, part):
                raise AttributeError(f"{module.__name__} has no {name}")
            owner = getattr(owner, part)
