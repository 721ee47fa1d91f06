"""Shows on standard error how far something is that takes long."""

import importlib
import sys
from collections.abc import Callable


def progress_bar(total: int, what: str, units: str) -> Callable[[int], None]:
    """Return a function that shows how many units are left, and ends the bar at 0.

    Args:
        total: how many there are.
        what: what is being done, such as ``"OpenCL kernels"``.
        units: what is counted, such as ``"programs"``.

    Returns:
        The function: a bar of tqdm where that is installed, else lines of text.
    """
    try:
        tqdm = importlib.import_module("tqdm").tqdm
    except ImportError:
        return lambda left: print(f"{what}: {total - left} of {total} {units}", file=sys.stderr)
    bar = tqdm(total=total, desc=what, unit=units.removesuffix("s"))

    def show(left: int) -> None:
        bar.update(max(0, total - left - bar.n))
        if left == 0:
            bar.close()

    return show
