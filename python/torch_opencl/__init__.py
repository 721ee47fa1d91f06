"""An OpenCL backend for PyTorch: ``torch.device("opencl")``, and this package as ``torch.opencl``.

``import torch`` alone is enough; PyTorch finds this package by its entry point. The names here are as in
``torch.cuda``, ``torch.xpu`` and ``torch.accelerator``.
"""

import sys as _sys
from typing import Any as _Any

import torch as _torch

from torch_opencl import _dlpack, _hooks, _load, amp, integrations, interop, random
from torch_opencl._lazy import (
    _is_in_bad_fork as _is_in_bad_fork,
    _lazy_init as _lazy_init,
    device_count,
    init,
    is_available,
    is_initialized,
)
from torch_opencl._refused import reason
from torch_opencl._tensor_types import storage_types, tensor_types
from torch_opencl.amp import get_amp_supported_dtype
from torch_opencl.device import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_gencode_flags,
    is_bf16_supported,
    is_tf32_supported,
    set_device,
    synchronize,
)
from torch_opencl.diagnostics import (
    fallbacks,
    get_sync_debug_mode,
    kernel_cache_info,
    launches,
    reset_fallbacks,
    set_sync_debug_mode,
)
from torch_opencl.extensions import include_paths, library_path
from torch_opencl.graphs import (
    OpenCLGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_opencl.kernels import Kernel, compile_kernel
from torch_opencl.memory import (
    OutOfMemoryError,
    _dump_snapshot as _dump_snapshot,
    _record_memory_history as _record_memory_history,
    _snapshot as _snapshot,
    empty_cache,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    ipc_collect,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_opencl.pools import (
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    change_current_allocator,
    get_allocator_backend,
    use_mem_pool,
)
from torch_opencl.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_opencl.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)
from torch_opencl.usage import clock_rate, device_memory_used, memory_usage, utilization
from torch_opencl.warmup import WarmupStatistics, warmup

__version__ = "0.1.0"

AcceleratorError = _torch.AcceleratorError
# Older programs read these.
has_half = True
has_magma = False

__all__ = [
    "AcceleratorError",
    "DeviceProperties",
    "Event",
    "ExternalStream",
    "Kernel",
    "MemPool",
    "OpenCLGraph",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "WarmupStatistics",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "can_device_access_peer",
    "change_current_allocator",
    "clock_rate",
    "compile_kernel",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "fallbacks",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "has_half",
    "has_magma",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "include_paths",
    "init",
    "initial_seed",
    "integrations",
    "interop",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "kernel_cache_info",
    "launches",
    "library_path",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_fallbacks",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "synchronize",
    "use_mem_pool",
    "utilization",
    "warmup",
]


# Type checkers do not need these legacy names.
globals().update(tensor_types() | storage_types())


def __getattr__(name: str) -> _Any:
    # torch.cuda.default_generators is a tuple; here `random` has a function that makes it.
    if name == "default_generators":
        return random.default_generators()
    # torch.utils.checkpoint reads it before it saves the RNG state.
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{reason(name)}")


_load.load(_sys.modules[__name__])
if _load.error() is None:
    _dlpack.install()
    _hooks.when_imported("torch.distributed.distributed_c10d", "torch_opencl._distributed:install")

# Lightning has registries for this, so nothing of Lightning is patched.
_hooks.when_imported("lightning.pytorch.accelerators", "torch_opencl.integrations.lightning:register")
_hooks.when_imported("lightning.fabric.accelerators", "torch_opencl.integrations.lightning:register")

# torch.compile: each function runs when PyTorch imports the module. `import torch` alone imports none of them.
_hooks.when_imported("torch._inductor.utils", "torch_opencl.inductor.registration:add_to_gpu_types")
_hooks.when_imported("torch._inductor.scheduler", "torch_opencl.inductor.registration:allow_without_triton")
_hooks.when_imported("torch._inductor.compile_fx", "torch_opencl.inductor.graph.fall_back:install")
_hooks.when_imported("torch._inductor.graph", "torch_opencl.inductor.registration:register_backend")
_hooks.when_imported("torch._inductor.lowering", "torch_opencl.inductor.registration:leave_to_eager")
_hooks.when_imported("torch._inductor.lowering", "torch_opencl.inductor.graph.lowerings:install")
_hooks.when_imported("torch._inductor.decomposition", "torch_opencl.inductor.graph.eager_kernels:keep")
_hooks.when_imported("torch._inductor.ir", "torch_opencl.inductor.graph.strides:install")
_hooks.when_imported("torch._inductor.runtime.benchmarking", "torch_opencl.inductor.registration:register_benchmarker")
_hooks.when_imported("torch._dynamo.variables.optimizer", "torch_opencl.inductor.registration:move_optimizer_state")
_hooks.when_imported("torch._dynamo.trace_rules", "torch_opencl.inductor.registration:keep_out_of_graphs")
_hooks.when_imported("torch.nn.attention.flex_attention", "torch_opencl.inductor.graph.flex_attention:allow")
_hooks.when_imported("torch._subclasses.fake_impls", "torch_opencl.inductor.graph.fakes:install")
_hooks.when_imported("torch._dynamo.device_interface", "torch_opencl.inductor.registration:register_interface")
_hooks.when_imported("torch._inductor.cudagraph_utils", "torch_opencl.inductor.registration:allow_graphs")
_hooks.when_imported("torch._inductor.compile_fx", "torch_opencl.inductor.registration:make_graphs")
_hooks.when_imported("torch._inductor.output_code", "torch_opencl.inductor.registration:leave_generations_to_cuda")
