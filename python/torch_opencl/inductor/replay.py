"""Graphs of compiled code, which ``mode="reduce-overhead"`` replays instead of running Inductor's wrapper.

A part of a compiled graph is called as usual a few times, then captured, and replayed from then on. Weights are read in
place. Other inputs are copied to the buffers of the capture, except results of another capture that have the same
address each time, such as tensors that a forward pass saves for its backward pass. Results stay in the capture's memory
while they are referenced: a call in the meantime uses a second capture.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from torch_opencl._load import native
from torch_opencl.device import device as device_guard
from torch_opencl.diagnostics import kernel_cache_info
from torch_opencl.graphs import OpenCLGraph, side_stream
from torch_opencl.streams import stream as select_stream

# Calls before the capture: a replay keeps the programs of its capture, so specialised ones must be built before.
_WARM_UPS = 2
_MOST_WARM_UPS = 20
# Captures of one part: for results that are still referenced, for weights that have moved, for streams.
_MOST_CAPTURES = 4
# Smaller results are copied out, because programs often keep losses.
_SMALL_BYTES = 1024

Model = Callable[[list[Any]], Any]


class _Memory:
    """State that captures of a device share."""

    # Addresses of the storages of captured results.
    results: ClassVar[set[int]] = set()


class _Copied:
    """An input that is copied to a buffer that the captured kernels read."""

    def __init__(self, index: int, given: torch.Tensor) -> None:
        self.index = index
        self.is_contiguous = given.is_contiguous()
        if self.is_contiguous:
            self.buffer = self.argument = torch.empty(given.shape, dtype=given.dtype, device=given.device)
            return
        # Elements may share memory: everything from the first to the last is copied.
        pairs = zip(given.shape, given.stride(), strict=True)
        span = 0 if given.numel() == 0 else 1 + sum((size - 1) * stride for size, stride in pairs)
        self.buffer = torch.empty(span, dtype=given.dtype, device=given.device)
        self.argument = self.buffer.as_strided(given.shape, given.stride())

    def source(self, inputs: Sequence[Any]) -> torch.Tensor:
        """Return the tensor to copy into the buffer.

        Args:
            inputs: of the call.
        """
        given = inputs[self.index]
        return given if self.is_contiguous else given.as_strided(self.buffer.shape, (1,))


class _Capture:
    """A captured call."""

    def __init__(self, model: Model, inputs: list[Any], fixed: frozenset[int], device: int, stream: int) -> None:
        self.stream = stream
        by_address = {i for i in range(len(inputs)) if i in fixed or _start(inputs[i]) in _Memory.results}
        self.addresses = [(i, inputs[i].data_ptr()) for i in sorted(by_address)]
        self.copied = [_Copied(i, given) for i, given in enumerate(inputs) if i not in by_address]
        self.buffers = [copied.buffer for copied in self.copied]
        arguments = list(inputs)
        for copied in self.copied:
            arguments[copied.index] = copied.argument
        starts = {_start(arguments[i]) for i in by_address}
        buffers = {_start(buffer) for buffer in self.buffers}
        self.graph = OpenCLGraph()
        with select_stream(side_stream(device)):
            # A separate pool: in a shared one, temporary memory of one capture would become results of another, which
            # may still be referenced when the first is replayed.
            self.graph.capture_begin()
            try:
                outputs = model(arguments)
                self.graph.capture_end()
            except BaseException:
                self.graph.reset()
                raise
        self.outputs = list(outputs)
        self.is_copied_out = [
            isinstance(output, torch.Tensor)
            and (_start(output) in buffers or (output.nbytes <= _SMALL_BYTES and _start(output) not in starts))
            for output in self.outputs
        ]
        storages = {
            _start(output): output.untyped_storage()
            for output, is_copied in zip(self.outputs, self.is_copied_out, strict=True)
            if isinstance(output, torch.Tensor) and not is_copied and _start(output) not in starts
        }
        storages.pop(0, None)
        _Memory.results.update(storages)
        self.storages = list(storages.values())
        self.counts = [(storage._cdata, torch._C._storage_Use_Count(storage._cdata)) for storage in self.storages]

    def fits(self, inputs: list[Any], stream: int) -> bool:
        """Return whether a call can replay it: inputs have not moved, and its results are unreferenced.

        Args:
            inputs: of the call.
            stream: the id of the call's stream.
        """
        return (
            stream == self.stream
            and all(inputs[i].data_ptr() == address for i, address in self.addresses)
            and all(torch._C._storage_Use_Count(storage) == count for storage, count in self.counts)
        )

    def replay(self, inputs: list[Any]) -> list[Any]:
        """Replay it.

        Args:
            inputs: of the call; they are released.

        Returns:
            The results.
        """
        if self.copied:
            torch._foreach_copy_(self.buffers, [copied.source(inputs) for copied in self.copied])
        inputs.clear()
        self.graph.replay()
        return [
            output if not isinstance(output, torch.Tensor) else output.clone() if is_copied else output.detach()
            for output, is_copied in zip(self.outputs, self.is_copied_out, strict=True)
        ]

    def forget(self) -> None:
        """Remove its results from the results that are not copied."""
        _Memory.results.difference_update(storage.data_ptr() for storage in self.storages)


def _start(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Replayed:
    """A part of a compiled graph, replayed if possible.

    Args:
        model: calls it through Inductor's wrapper, and empties the list of inputs.
        device: index of the device that it runs on.
        static: indices of inputs that do not move.
        mutated: indices of inputs that it writes.
        skip: called with the reason if it cannot be captured.
    """

    def __init__(
        self, model: Model, device: int, static: Sequence[int], mutated: Sequence[int], skip: Callable[[str], None]
    ) -> None:
        self.model = model
        self.device = device
        self.static = frozenset(static)
        self.mutated = frozenset(mutated)
        self.skip = skip
        self.calls = 0
        self.is_warm = False
        self.captures: list[_Capture] = []
        self.is_refused = False
        self.lock = threading.Lock()

    def __call__(self, inputs: list[Any]) -> Any:
        """Compute the part.

        Args:
            inputs: its inputs; the list is emptied.

        Returns:
            Its outputs.
        """
        if torch._C._accelerator_getDeviceIndex() != self.device:
            with device_guard(self.device):
                return self(inputs)
        if self.is_refused or native().is_current_stream_capturing():
            return self.model(inputs)
        if not self.is_warm:
            return self._warm_up(inputs)
        with self.lock:
            stream = torch._C._accelerator_getStream(self.device).stream_id
            for capture in self.captures:
                if capture.fits(inputs, stream):
                    return capture.replay(inputs)
            capture = self._capture(inputs, stream)
            if capture is not None:
                return capture.replay(inputs)
        return self.model(inputs)

    def _warm_up(self, inputs: list[Any]) -> Any:
        self.calls += 1
        native().set_eager_builds(True)
        try:
            return self.model(inputs)
        finally:
            native().set_eager_builds(False)
            is_built = self.calls >= _WARM_UPS and kernel_cache_info()["pending"] == 0
            self.is_warm = is_built or self.calls >= _MOST_WARM_UPS

    def _capture(self, inputs: list[Any], stream: int) -> _Capture | None:
        if len(self.captures) >= _MOST_CAPTURES:
            return None
        reason = self._obstacle(inputs)
        if reason is None:
            try:
                capture = _Capture(self.model, inputs, self.static, self.device, stream)
            except (RuntimeError, IndexError) as error:
                reason = str(error)
            else:
                self.captures.append(capture)
                return capture
        self.is_refused = True
        self.skip(f"skipping graphs of opencl: {reason}")
        return None

    def _obstacle(self, inputs: list[Any]) -> str | None:
        if not all(isinstance(given, torch.Tensor) for given in inputs):
            return "sizes may change"
        if not all(given.device == torch.device("opencl", self.device) for given in inputs):
            return "inputs on several devices"
        if self.mutated - self.static:
            return "a mutated input is not a weight or buffer of the model"
        return None

    def __del__(self) -> None:
        # At exit the module's names may already be None.
        for capture in self.captures if _Memory is not None else ():
            capture.forget()
