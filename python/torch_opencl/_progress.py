"""Shows the progress of long work on standard error."""

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator

# Seconds between two updates of a bar.
_INTERVAL = 0.5


@contextlib.contextmanager
def following(count: Callable[[], tuple[int, int]], what: str, units: str) -> Iterator[None]:
    """Show the progress of the work in the context, until it ends.

    Args:
        count: returns how many units are done and how many are known so far; called by another thread.
        what: what is being done, such as ``"OpenCL kernels"``.
        units: what is counted, such as ``"programs"``.

    Yields:
        Nothing.
    """
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_INTERVAL):
            show(*count())

    show, close = _growing_bar(what, units)
    thread = threading.Thread(target=follow, name="torch-opencl-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        show(*count())
        close()


def _growing_bar(what: str, units: str) -> tuple[Callable[[int, int], None], Callable[[], None]]:
    """Return a function that shows the done and the total units, and one that ends the bar."""
    try:
        tqdm = importlib.import_module("tqdm").tqdm
    except ImportError:
        last: list[tuple[int, int]] = []

        def print_line(done: int, total: int) -> None:
            if [(done, total)] != last:
                last[:] = [(done, total)]
                print(f"{what}: {done} of {total} {units}", file=sys.stderr)

        return print_line, lambda: None
    bar = tqdm(total=0, desc=what, unit=units.removesuffix("s"))

    def show(done: int, total: int) -> None:
        bar.n, bar.total = done, total
        bar.refresh()

    return show, bar.close


def progress_bar(total: int, what: str, units: str) -> Callable[[int], None]:
    """Return a function that shows how many units are left, and ends the bar at 0.

    Args:
        total: how many there are.
        what: what is being done, such as ``"OpenCL kernels"``.
        units: what is counted, such as ``"programs"``.

    Returns:
        The function: a tqdm bar if tqdm is installed, else lines of text.
    """
    show, close = _growing_bar(what, units)

    def show_left(left: int) -> None:
        show(total - left, total)
        if left == 0:
            close()

    return show_left
