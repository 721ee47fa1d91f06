"""Runs work in several threads at once."""

import threading
from collections.abc import Callable


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Run work in threads, and wait for all of them.

    Args:
        count: the number of threads.
        work: called in each thread, with the thread's number.

    Raises:
        BaseException: the first exception raised by work in any of them.
    """
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
