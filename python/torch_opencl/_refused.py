"""Names of ``torch.cuda`` and ``torch.xpu`` that ``torch.opencl`` lacks, each with a replacement or the reason."""

_PLUGGABLE = "OpenCL's allocator cannot be replaced"
_SENSORS = "OpenCL does not report it; use the vendor's tool"
_GRAPH_DATA = "a captured graph is a list of launches in this package; torch.profiler shows them when they are replayed"
_HANDLE = "the operators use no vendor library"

# Each is the end of the message "has no attribute".
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
    "cudart": "torch.opencl.interop has the driver's objects",
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
    """Return why a name is not in ``torch.opencl``, as the end of a sentence.

    Args:
        name: the missing attribute.

    Returns:
        A colon and the reason; an empty string for unknown names.
    """
    return f": {_REASONS[name]}" if name in _REASONS else ""
