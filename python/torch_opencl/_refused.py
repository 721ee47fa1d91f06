"""Names of ``torch.cuda`` and ``torch.xpu`` that are not here, each with what to use or why."""

_PLUGGABLE = "OpenCL has no allocator to exchange"
_SENSORS = "OpenCL does not tell, and the vendor's own tool does"
_GRAPH_DATA = "a captured graph is a list of launches in this package, which torch.profiler shows as they are replayed"
_HANDLE = "there is no library of the vendor's behind the operators"

# The text after "has no attribute".
_REASONS = {
    "CUDAGraph": "it is OpenCLGraph",
    "XPUGraph": "it is OpenCLGraph",
    "CUDAPluggableAllocator": _PLUGGABLE,
    "XPUPluggableAllocator": _PLUGGABLE,
    "CudaError": "errors are RuntimeError and torch.OutOfMemoryError",
    "DeferredCudaCallError": "errors are raised by the call that needs the device",
    "GreenContext": "OpenCL 1.2 cannot divide a device for streams",
    "green_contexts": "OpenCL 1.2 cannot divide a device for streams",
    "caching_allocator_disabled": "memory is always cached, as buffers may only go when the device is idle",
    "caching_allocator_enable": "memory is always cached, as buffers may only go when the device is idle",
    "check_error": "OpenCL's status codes are raised as RuntimeError where they occur",
    "cudaStatus": "OpenCL's status codes are raised as RuntimeError where they occur",
    "cudart": "the driver's objects are those of torch.opencl.interop",
    "current_blas_handle": _HANDLE,
    "current_solver_handle": _HANDLE,
    "export_dot": _GRAPH_DATA,
    "export_graph_data": _GRAPH_DATA,
    "gds": "OpenCL reads no files",
    "graph_annotations": _GRAPH_DATA,
    "jiterator": "use torch.opencl.compile_kernel",
    "compile_shader": "use torch.opencl.compile_kernel",
    "list_gpu_processes": _SENSORS,
    "nccl": "torch.distributed runs on gloo, docs/distributed.md",
    "nvtx": "use torch.profiler.record_function",
    "power_draw": _SENSORS,
    "profiler": "use torch.profiler",
    "sparse": "sparse tensors are made by torch.sparse_coo_tensor",
    "temperature": _SENSORS,
    "tunable": "use python -m torch_opencl.tune",
}


def reason(name: str) -> str:
    """Return why a name is not in ``torch.opencl``, to end a sentence with.

    Args:
        name: what was asked for.

    Returns:
        The reason, behind a colon; nothing for names that are not known.
    """
    return f": {_REASONS[name]}" if name in _REASONS else ""
