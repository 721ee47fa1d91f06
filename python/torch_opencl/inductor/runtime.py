"""Functions that generated wrappers call: building a graph's program, and launches."""

import contextlib
import importlib.machinery
import importlib.util
import weakref
from types import ModuleType
from typing import Any

import torch

from torch_opencl._load import LIBRARY, native


class Library:
    """The kernels of a graph: one program per device."""

    def __init__(self) -> None:
        self.sources: dict[int, dict[str, str]] = {}

    def add(self, name: str, source: str, device: int) -> None:
        """Add a kernel.

        Args:
            name: of its function.
            source: OpenCL C.
            device: index of the device.
        """
        self.sources.setdefault(device, {})[name] = source

    def build(self, scope: dict[str, Any]) -> None:
        """Build the programs, and bind the kernels' names to their ids.

        Args:
            scope: the wrapper's module.

        Raises:
            RuntimeError: a kernel does not compile; the message has the compiler's log.
        """
        for device, sources in self.sources.items():
            kernels = native().build_kernels(device, "\n".join(sources.values()), list(sources))
            scope.update(zip(sources, kernels, strict=True))
            weakref.finalize(self, native().release_kernels, kernels).atexit = False

    @staticmethod
    def message(text: str) -> int:
        """The id of an assertion's message."""
        return native().fault_message(text)


def dtype_code(dtype: torch.dtype) -> int:
    """The code of a dtype in C++."""
    return native().dtype_code(dtype)


def _empty_strided(size: tuple[int, ...], stride: tuple[int, ...], code: int, device: int) -> torch.Tensor:
    """Allocate through the dispatcher: cases that the extension does not support, and errors."""
    dtypes = {dtype_code(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
    return torch.empty_strided(size, stride, dtype=dtypes[code], device=f"opencl:{device}")


def _load_extension() -> ModuleType:
    """Load the extension: ``torch.ops`` and ``torch.empty_strided`` take several times as long on the host."""
    path = str(LIBRARY.parent / "_launch.abi3.so")
    loader = importlib.machinery.ExtensionFileLoader("_launch", path)
    spec = importlib.util.spec_from_file_location("_launch", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    module.bind(native().launch_function())
    module.bind_empty_strided(native().new_tensor_function(), _empty_strided)
    return module


_extension = _load_extension()
# launch(kernel, global_size, local_size, is_short, *args) enqueues a kernel on the current stream: its id, work-items,
# work-items of a group, true if it may be deferred until others start; tensors and scalars.
launch = _extension.launch
# empty_strided(size, stride, dtype_code, device) makes a tensor: its size and stride in elements, the code of its
# dtype, the index of its device.
empty_strided = _extension.empty_strided
# The device guard if there is only one device.
nothing = contextlib.nullcontext()
