"""What generated wrappers call: building a graph's program, and launches."""

import itertools
import weakref
from typing import Any

import torch

from torch_opencl._load import native

_launch_kernel = torch.ops.torch_opencl.launch_kernel.default


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


def launch(kernel: int, global_size: int, local_size: int, is_short: int, *args: Any) -> None:
    """Enqueue a kernel on the current stream.

    Args:
        kernel: its number.
        global_size: work-items.
        local_size: work-items of a group.
        is_short: true where it need not start before others do.
        args: tensors, then numbers.
    """
    buffers = list(itertools.takewhile(lambda arg: isinstance(arg, torch.Tensor), args))
    _launch_kernel(kernel, global_size, local_size, bool(is_short), buffers, args[len(buffers) :])
