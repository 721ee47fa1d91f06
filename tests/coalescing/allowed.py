"""Uses of kernels that may do worse, each with its reason."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Allowed:
    """An exception.

    Args:
        kernel: a pattern for the kernel's name.
        call: a pattern for the call's name.
        kinds: what is allowed: "load", "store", "loop", "group", with spaces between.
        floor: the least efficiency (or, for loops, number of work-items that share the work).
        reason: why.
    """

    kernel: str
    call: str
    kinds: str
    floor: float
    reason: str

    def covers(self, kernel: str, call: str, kind: str, value: float) -> bool:
        """Tell whether a finding is this exception.

        Args:
            kernel: the kernel's name.
            call: the call's name.
            kind: "load", "store", "loop" or "group".
            value: what was measured, in the unit of ``floor``.

        Returns:
            Whether it is.
        """
        named = fnmatchcase(kernel, self.kernel) and fnmatchcase(call, self.call)
        return named and kind in self.kinds.split() and value >= self.floor


ALLOWED: list[Allowed] = []
