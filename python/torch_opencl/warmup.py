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

# A function whose calls differ (a random shape, say) wants other kernels each time, and would never be done.
_MOST_CALLS = 5
# Seconds between two looks at what is left.
_INTERVAL = 0.2


@dataclass(frozen=True)
class WarmupStatistics:
    """The work that :func:`warmup` has done.

    Attributes:
        seconds: how long it took.
        calls: how often the function was called.
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

    The first time a kernel is used it is compiled, in a generic form; the form that is specialised for an
    operator and its dtypes follows in the background once large tensors have used it often enough, in this
    process or an earlier one. This waits for both, for a program that wants its full speed from the first step
    on, or that is timed. With ``TORCH_OPENCL_SPECIALIZE=never`` nothing is specialised here either.

    Args:
        function: what to warm up: a model, or a function that does a training step. It is called two to
            five times, with all its effects: weights are trained, random numbers are drawn.
        *args: its arguments.
        progress: whether to show on standard error how far it is, from the first call to the last: a bar of tqdm
            where that is installed, else lines of text.
        **kwargs: its named arguments.

    Returns:
        What was done.

    Raises:
        RuntimeError: there is no OpenCL device, or an environment variable has a wrong value.
        Exception: whatever the function raises.
    """
    _lazy_init()
    before, start = kernel_cache_info(), time.perf_counter()
    calls = 0
    native().set_eager_builds(True)
    # Nothing is shown besides the bar.
    native().show_progress(False)
    try:
        with _progress(before) if progress else contextlib.nullcontext():
            while calls < _MOST_CALLS:
                function(*args, **kwargs)
                calls += 1
                for index in filter(native().is_initialized, range(device_count())):
                    native().synchronize(index)
                # The call after the last build has drivers do what they put off until a kernel is launched.
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
    """Show the programs that are built in the context, also those that the function itself waits for."""

    def count() -> tuple[int, int]:
        info = kernel_cache_info()
        done = info["compiled"] + info["loaded"] - before["compiled"] - before["loaded"]
        return done, done + info["pending"]

    with following(count, "OpenCL kernels", "programs"):
        yield
