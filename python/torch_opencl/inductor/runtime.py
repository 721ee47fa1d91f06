"""What generated wrappers call: building a graph's program, and launches."""

import importlib.machinery
import importlib.util
import weakref
from collections.abc import Callable
from typing import Any

from torch_opencl._load import LIBRARY, native


class Library:
    """The kernels of a graph: one program for each device."""

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
        """Build the programs, and put the kernels' numbers in place of their names.

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
        """The number of an assertion's message."""
        return native().fault_message(text)


def _load_launch() -> Callable[..., None]:
    """Load the extension: a launch through ``torch.ops`` takes the host several times as long."""
    path = str(LIBRARY.parent / "_launch.abi3.so")
    loader = importlib.machinery.ExtensionFileLoader("_launch", path)
    spec = importlib.util.spec_from_file_location("_launch", path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    module.bind(native().launch_function())
    return module.launch


# launch(kernel, global_size, local_size, is_short, *args) enqueues a kernel on the current stream: its number,
# work-items, those of a group, true where it need not start before others do; tensors and numbers.
launch = _load_launch()
