"""How the minutes are shared among the parts."""

import time
from collections.abc import Callable, Sequence


class Budget:
    """The time that is left, shared by weights: what a part leaves unused goes to those after it.

    Args:
        seconds: for all parts together, from now on.
        clock: what tells the time in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    def left(self) -> float:
        """Return the seconds that are left, 0 at least."""
        return max(0.0, self._end - self._clock())

    def share(self, weight: float, later: Sequence[float], least: float = 0) -> float:
        """Return the seconds that the next part may take.

        Args:
            weight: the part's.
            later: the weights of the parts that are still to come after it.
            least: the seconds with less than which it is of no use: it gets them, and parts after it less.
        """
        return min(self.left(), max(least, self.left() * weight / (weight + sum(later))))
