"""Builds the kernels that a function uses before they are needed."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch_opencl._lazy import _lazy_init, device_count
from torch_opencl._load import native
from torch_opencl._progress import following
from torch_opencl.diagnostics import KernelCacheInfo, kernel_cache_info

__all__ = ["WarmupStatistics", "warmup"]

# A function whose calls differ (for example in a random shape) needs new kernels each time, and would never finish.
_MOST_CALLS = 5
# Seconds of one wait for pending builds.
_INTERVAL = 0.2


@dataclass(frozen=True)
class WarmupStatistics:
    """The work that :func:`warmup` has done.

    Attributes:
        seconds: the duration.
        calls: the number of calls of the function.
        compiled: programs that were compiled.
        loaded: programs that an earlier process had compiled.
        specialized: how many of both are specialised for their operator and dtypes.
        failed: specialised programs that could not be built; the generic ones stay in use.
    """

    seconds: float
    calls: int
    compiled: int
    loaded: int
    specialized: int
    failed: int


def warmup(function: Callable[..., Any], *args: Any, progress: bool = True, **kwargs: Any) -> WarmupStatistics:
    """Call a function until all kernels that it uses have been built.

    At its first use a kernel is compiled in a generic form. The form that is specialised for an operator and its
    dtypes follows in the background once large tensors have used it often enough, in this process or an earlier
    one. This function waits for both, for programs that need full speed from the first step or are timed. With
    ``TORCH_OPENCL_SPECIALIZE=never`` nothing is specialised here either.

    Args:
        function: the function to warm up: a model, or a training step. It is called two to five times, with all its
            side effects: weights are trained, random numbers are drawn.
        *args: its arguments.
        progress: whether to show the progress on standard error: a tqdm bar if tqdm is installed, else lines of text.
        **kwargs: its named arguments.

    Returns:
        The work that was done.

    Raises:
        RuntimeError: there is no OpenCL device, or an environment variable has a wrong value.
        Exception: any exception of the function.
    """
    _lazy_init()
    before, start = kernel_cache_info(), time.perf_counter()
    calls = 0
    native().set_eager_builds(True)
    # The library's progress output would mix with the bar.
    native().show_progress(False)
    try:
        with _progress(before) if progress else contextlib.nullcontext():
            while calls < _MOST_CALLS:
                function(*args, **kwargs)
                calls += 1
                for index in filter(native().is_initialized, range(device_count())):
                    native().synchronize(index)
                # Drivers defer some work until a kernel is launched, so one call follows the last build.
                if not kernel_cache_info()["pending"] and calls > 1:
                    break
                while native().wait_for_builds(_INTERVAL) > 0:
                    pass
    finally:
        native().show_progress(True)
        native().set_eager_builds(False)
    after = kernel_cache_info()
    return WarmupStatistics(
        time.perf_counter() - start,
        calls,
        compiled=after["compiled"] - before["compiled"],
        loaded=after["loaded"] - before["loaded"],
        specialized=after["specialized"] - before["specialized"],
        failed=after["failed"] - before["failed"],
    )


@contextlib.contextmanager
def _progress(before: KernelCacheInfo) -> Iterator[None]:
    """Show the programs that are built in the context, also those that the function waits for."""

    def count() -> tuple[int, int]:
        info = kernel_cache_info()
        done = info["compiled"] + info["loaded"] - before["compiled"] - before["loaded"]
        return done, done + info["pending"]

    with following(count, "OpenCL kernels", "programs"):
        yield
