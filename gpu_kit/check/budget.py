"""The division of the time among the parts."""

import time
from collections.abc import Callable, Sequence


class Budget:
    """The remaining time, shared by weights: unused time of a part goes to later parts.

    Args:
        seconds: for all parts together, from now on.
        clock: returns the time in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._end - self._clock())

    def share(self, weight: float, later: Sequence[float], least: float = 0) -> float:
        """Return the seconds that the next part may take.

        Args:
            weight: of the part.
            later: the weights of the later parts.
            least: the least useful seconds of the part: it gets them, and later parts get less.
        """
        return min(self.left(), max(least, self.left() * weight / (weight + sum(later))))
