"""``torch.distributed`` with OpenCL tensors: PyTorch's CPU backends run the collectives."""

from typing import Any

import torch

__all__ = ["install"]

# PyTorch's backends that read and write host memory. "fake" accesses none.
_CPU_BACKENDS = ("gloo", "mpi", "ucc")


def install(module: Any) -> None:
    """Make the device known to process groups.

    The CPU backends named for it (gloo by default) are wrapped in a backend that accepts OpenCL tensors.

    Args:
        module: torch.distributed.distributed_c10d. Does nothing if PyTorch was built without it.
    """
    if not torch.distributed.is_available():
        return
    module.Backend.default_device_backend_map.setdefault("opencl", "gloo")
    for name in (*_CPU_BACKENDS, "fake"):
        # A release of PyTorch may lack one.
        devices = module.Backend.backend_capability.get(name, ["opencl"])
        if "opencl" not in devices:
            devices.append("opencl")

    types = module.ProcessGroup.BackendType
    cpu_types = tuple(getattr(types, name.upper()) for name in _CPU_BACKENDS if hasattr(types, name.upper()))
    register = module.ProcessGroup._register_backend

    def register_backend(group: Any, device: torch.device, backend_type: Any, backend: Any = None) -> None:
        """Register a backend as PyTorch's method does; for OpenCL, wrap the CPU backend."""
        if device.type != "opencl" or backend is None or backend_type not in cpu_types:
            register(group, device, backend_type, backend)
            return
        # `init_process_group()` makes only the accelerator's backend; the CPU needs one as well.
        if torch.device("cpu") not in group._device_types:
            register(group, torch.device("cpu"), backend_type, backend)
        # Only a ProcessGroup can be passed to C++, not a backend by itself.
        carrier = module.ProcessGroup(torch.distributed.HashStore(), backend.rank(), backend.size())
        register(carrier, torch.device("cpu"), backend_type, backend)
        torch.ops.torch_opencl.add_device_backend(carrier.boxed())
        register(group, device, types.CUSTOM, carrier._get_backend(device))
        # PyTorch sets no default backend if the backends were given by device.
        if group._get_backend_name() == "undefined" and group._get_backend(torch.device("cpu")) is backend:
            group._set_default_backend(backend_type)

    module.ProcessGroup._register_backend = register_backend
