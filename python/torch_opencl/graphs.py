"""Graphs: work that is captured once and replayed, as with ``torch.cuda.graph``."""

import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torch_opencl._lazy import _lazy_init, is_initialized
from torch_opencl._load import native
from torch_opencl.device import synchronize
from torch_opencl.graphed import GraphedCallable, check_callable
from torch_opencl.memory import empty_cache
from torch_opencl.streams import Stream, stream as select_stream

__all__ = [
    "OpenCLGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

PoolHandle = tuple[int, int]
_MODES = ("default", "global", "thread_local", "relaxed")


def is_current_stream_capturing() -> bool:
    """Return whether work on the current stream is being captured.

    Returns:
        True during a capture; False if OpenCL has not been used yet.
    """
    return is_initialized() and native().is_current_stream_capturing()


@functools.cache
def _watch_optimizers() -> None:
    """Make optimizers raise for steps that a graph cannot replay correctly, as PyTorch does for CUDA."""

    def check(optimizer: torch.optim.Optimizer, *_: object) -> None:
        # Optimizers without a `capturable` argument have no state that it would move to the device.
        is_repeated = all(group.get("capturable", True) for group in optimizer.param_groups)
        if not is_repeated and is_current_stream_capturing():
            raise RuntimeError(
                f"a graph would repeat the same step of {type(optimizer).__name__}, which counts steps on the host: "
                "create it with capturable=True."
            )

    register_optimizer_step_pre_hook(check)


def graph_pool_handle() -> PoolHandle:
    """Return the id of a new memory pool, for graphs that share one.

    Returns:
        Two opaque integers.
    """
    return native().new_graph_pool()


class OpenCLGraph:
    """A list of kernels, copies and fills, captured on a stream and replayed without Python.

    Args:
        keep_graph: accepted for compatibility; a captured graph is ready to be replayed.

    Example::

        g = torch.opencl.OpenCLGraph()
        with torch.opencl.graph(g):
            y = model(x)
        x.copy_(batch)
        g.replay()
    """

    def __init__(self, keep_graph: bool = False) -> None:
        _lazy_init()
        native()
        self._graph = torch.classes.torch_opencl.Graph()

    def capture_begin(self, pool: PoolHandle | None = None, capture_error_mode: str = "global") -> None:
        """Record work on the current stream from now on, instead of running it.

        Args:
            pool: the memory pool, of :func:`graph_pool_handle` or :meth:`pool`; a new one by default.
            capture_error_mode: accepted for compatibility, one of ``"global"``, ``"thread_local"``, ``"relaxed"`` and
                ``"default"``; calls that a graph cannot hold are errors on the captured streams only.

        Raises:
            RuntimeError: the current stream is the default one or is being captured, or the graph has been captured.
                During the capture also ``step()`` of an optimizer without ``capturable=True`` raises it.
            ValueError: there is no such mode.
        """
        if capture_error_mode not in _MODES:
            raise ValueError(f"capture_error_mode is one of {', '.join(_MODES)}, but got: {capture_error_mode!r}")
        _watch_optimizers()
        self._graph.capture_begin(*(pool or (0, 0)))

    def capture_end(self) -> None:
        """End the capture.

        Raises:
            RuntimeError: a call during the capture could not be recorded, which leaves the graph empty; or no capture
                has begun, or it began on another stream.
        """
        self._graph.capture_end()

    def instantiate(self) -> None:
        """Do nothing: a captured graph is ready.

        Raises:
            RuntimeError: nothing has been captured.
        """
        self._graph.instantiate()

    def replay(self) -> None:
        """Enqueue the captured work on the current stream of the graph's device.

        Raises:
            RuntimeError: nothing has been captured, or the current stream is being captured.
        """
        self._graph.replay()

    def reset(self) -> None:
        """Delete the captured work once its replays are done; its memory can then be reused."""
        self._graph.reset()

    def pool(self) -> PoolHandle:
        """Return the id of the graph's memory pool.

        Returns:
            Two opaque integers.

        Raises:
            RuntimeError: nothing has been captured.
        """
        return self._graph.pool()

    def raw_kernels(self) -> list[tuple[int, tuple[int, ...], tuple[int, ...] | None]]:
        """Return the kernel launches of the graph, for other OpenCL code.

        Returns:
            For each launch the ``cl_kernel`` with its arguments set, the global size, and the local size (None if the
            driver chooses it). Copies and fills are left out. The graph owns the handles, until it is reset.

        Raises:
            RuntimeError: nothing has been captured.
        """
        numbers = self._graph.kernels()
        launches = []
        for start in range(0, len(numbers), 8):
            kernel, dimensions, *sizes = numbers[start : start + 8]
            group = tuple(sizes[3 : 3 + dimensions])
            launches.append((kernel, tuple(sizes[:dimensions]), group if all(group) else None))
        return launches

    def enable_debug_mode(self) -> None:
        """Do nothing: :meth:`debug_dump` can write every graph."""

    def debug_dump(self, debug_path: str) -> None:
        """Write the graph's commands to a text file, one per line.

        Args:
            debug_path: of the file.

        Raises:
            RuntimeError: nothing has been captured, or the file cannot be written.
        """
        self._graph.dump(debug_path)


class _SideStreams(threading.local):
    """The calling thread's streams to capture on, by device."""

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}


_SIDE_STREAMS = _SideStreams()


def side_stream(device: int) -> Stream:
    """The calling thread's stream to capture on: two threads cannot capture on one stream.

    Args:
        device: the device's index.
    """
    return _SIDE_STREAMS.streams.get(device) or _SIDE_STREAMS.streams.setdefault(device, Stream(device))


class graph:
    """Context manager that captures the work of its block into a graph.

    Args:
        opencl_graph: the graph.
        pool: the memory pool, of :func:`graph_pool_handle` or :meth:`OpenCLGraph.pool`; a new one by default.
        stream: the stream to capture; a side stream of the current device by default.
        capture_error_mode: as in :meth:`OpenCLGraph.capture_begin`.

    Raises:
        RuntimeError: the block made a call that a graph cannot hold.
    """

    def __init__(
        self,
        opencl_graph: OpenCLGraph,
        pool: PoolHandle | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        _lazy_init()
        if stream is None:
            stream = side_stream(torch._C._accelerator_getDeviceIndex())
        self.opencl_graph = opencl_graph
        self.pool = pool
        self.capture_stream = stream
        self.capture_error_mode = capture_error_mode
        self._selected = select_stream(stream)

    def __enter__(self) -> None:
        if is_current_stream_capturing():
            # Raises an error about the nested capture, instead of one about synchronize(), and ends the outer capture.
            self.opencl_graph.capture_begin(self.pool, self.capture_error_mode)
        synchronize()
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        self._selected.__enter__()
        try:
            self.opencl_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._selected.__exit__(None, None, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            if kind is None:
                self.opencl_graph.capture_end()
            else:
                # The block's error says what happened.
                self.opencl_graph.reset()
        finally:
            self._selected.__exit__(kind, *exception)


def make_graphed_callables(
    callables: Callable[..., Any] | tuple[Callable[..., Any], ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: PoolHandle | None = None,
) -> Any:
    """Capture functions or modules, forward and backward; calls of the results replay the graphs.

    Every call saves its tensors for the backward pass in the same memory: call a result again only after the backward
    pass of its last call. Pass a function that is called twice per step twice, ``(f, f)``.

    Args:
        callables: a function or a module, or a tuple of them in the order in which they will be called.
        sample_args: the tensors of a call, as a tuple; for several callables a tuple of such tuples. Later calls take
            tensors of the same shapes, strides, dtypes and ``requires_grad``.
        num_warmup_iters: the number of calls before the capture.
        allow_unused_input: whether inputs may have no gradient.
        pool: the memory pool of all graphs; a new one by default.

    Returns:
        The graphed callable, or a tuple of them. A module is returned itself, with a ``forward`` that is replaced for
        its current mode, training or evaluation.

    Raises:
        RuntimeError: autocast would cache casts, a module has hooks or buffers that require gradients, a call cannot
            be captured, or an input has no gradient. Also the backward pass of a call raises it if the callable has
            been called again.
    """
    if torch.is_autocast_enabled("opencl") and torch.is_autocast_cache_enabled():
        raise RuntimeError("make_graphed_callables does not support autocast's cache: pass cache_enabled=False")
    is_one = not isinstance(callables, tuple)
    functions = callables if isinstance(callables, tuple) else (callables,)
    samples = (sample_args,) if is_one else sample_args
    if len(functions) != len(samples):
        raise RuntimeError(f"there are {len(functions)} callables and sample_args for {len(samples)}")
    graphed = []
    for function, arguments in zip(functions, samples, strict=True):
        check_callable(function)
        graphed.append(GraphedCallable(function, arguments, allow_unused_input))
    pool = graph_pool_handle() if pool is None else pool
    side = Stream()
    synchronize()
    with select_stream(side):
        for each in graphed:
            each.warm_up(num_warmup_iters)
    synchronize()
    for each in graphed:
        each.forward_graph = OpenCLGraph()
        with graph(each.forward_graph, pool=pool, stream=side):
            each.capture_forward()
    for each in reversed(graphed):
        each.backward_graph = OpenCLGraph()
        with graph(each.backward_graph, pool=pool, stream=side):
            each.capture_backward()
    results = tuple(each.wrapped() for each in graphed)
    return results[0] if is_one else results
