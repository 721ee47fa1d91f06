"""What generated wrappers call: building a graph's program, and launches."""

import importlib.machinery
import importlib.util
import weakref
from collections.abc import Callable
from typing import Any

from torch_opencl._load import LIBRARY, native


class Library:
    """The kernels of a graph: one program."""

    def __init__(self) -> None:
        self.sources: list[tuple[str, str]] = []

    def add(self, name: str, source: str) -> None:
        """Add a kernel.

        Args:
            name: of its function.
            source: OpenCL C.
        """
        self.sources.append((name, source))

    def build(self, scope: dict[str, Any], device: int) -> None:
        """Build the program, and put the kernels' numbers in place of their names.

        Args:
            scope: the wrapper's module.
            device: index of the device.
        """
        if not self.sources:
            return
        names = [name for name, _ in self.sources]
        source = "\n".join(source for _, source in self.sources)
        kernels = native().build_kernels(device, source, names)
        scope.update(zip(names, kernels, strict=True))
        weakref.finalize(self, native().release_kernels, kernels)

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
