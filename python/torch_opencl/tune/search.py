"""The search: group by group, a candidate replaces the current parameters if it is measured to be faster twice."""

import math
from collections.abc import Callable, Iterator
from typing import Protocol

from torch_opencl.tune.record import Record, Values
from torch_opencl.tune.space import Groups

# The mean speedup over all work that a candidate needs: more than the noise between equal candidates on a machine that
# runs other programs.
_GAIN = 1.02
# Minimum speedup in each kind of work: a candidate may be slightly slower in one kind.
_LEAST = 0.95
# A candidate with a lower speedup in one kind of work is not timed with the others.
_TOO_SLOW = 0.8


class Rig(Protocol):
    """A source of measurements."""

    names: list[str]

    def compare(self, name: str, candidate: Values, other: Values) -> float:
        """Return the speedup of a candidate for the work of that name; raise RuntimeError if it fails."""

    def verify(self, candidate: Values) -> None:
        """Raise RuntimeError if a candidate computes a wrong result."""


def mean(ratios: dict[str, float]) -> float:
    """Return the geometric mean.

    Args:
        ratios: the speedup for each kind of work.

    Returns:
        The mean; 1 without ratios.
    """
    return math.exp(sum(map(math.log, ratios.values())) / len(ratios)) if ratios else 1.0


def differences(values: Values, defaults: Values) -> str:
    """Return how parameters differ from the defaults.

    Args:
        values: the parameters.
        defaults: the parameters that a device starts with.

    Returns:
        ``"block_k=256 tile_rows=4"``, or ``"defaults"``.
    """
    changed = [f"{name}={value}" for name, value in sorted(values.items()) if value != defaults[name]]
    return " ".join(changed) or "defaults"


class Search:
    """A search that keeps its comparisons in a record and does not repeat them.

    Args:
        rig: the source of measurements.
        record: the measurements so far. At the end its ``values`` are the search's result.
        save: called whenever the record has changed.
    """

    def __init__(self, rig: Rig, record: Record, save: Callable[[], None]):
        self._rig, self._record, self._save = rig, record, save
        if record.trying is not None:
            record.trials[record.trying] = {"failed": "the process ended while this was tried"}
            record.trying = None

    def run(self, groups: Groups) -> Iterator[None]:
        """Try all candidates; the best of a group is used in later groups.

        Args:
            groups: the candidates.

        Yields:
            After each candidate.
        """
        best = dict(self._record.defaults)
        for group in groups:
            found: list[tuple[float, Values]] = []
            for change in group:
                candidate = best | change
                if candidate != best and self._is_faster(ratios := self._compare(candidate, best)):
                    found.append((mean(ratios), candidate))
                yield
            for _, candidate in sorted(found, key=lambda pair: -pair[0]):
                # The best of many measurements is partly luck, so it is measured again.
                if self._is_faster(self._compare(candidate, best, "again: ", verify=True)):
                    best = candidate
                    break
        speedup = self._compare(best, self._record.defaults, "at last: ") if best != self._record.defaults else {}
        if not self._is_faster(speedup):
            best, speedup = dict(self._record.defaults), {}
        self._record.values, self._record.speedup = best, speedup
        self._save()

    def _is_faster(self, ratios: dict[str, float]) -> bool:
        return set(ratios) == set(self._rig.names) and mean(ratios) >= _GAIN and min(ratios.values()) >= _LEAST

    def _compare(self, candidate: Values, other: Values, prefix: str = "", verify: bool = False) -> dict[str, float]:
        """Return a candidate's speedup in each kind of work; incomplete if it is too slow or fails."""
        defaults = self._record.defaults
        key = f"{prefix}{differences(candidate, defaults)} / {differences(other, defaults)}"
        trial = self._record.trials.setdefault(key, {})
        if "failed" in trial:
            return {}
        missing = [name for name in self._rig.names if name not in trial]
        if missing and all(ratio >= _TOO_SLOW for ratio in trial.values()):
            self._record.trying = key
            self._save()
            try:
                if verify:
                    self._rig.verify(candidate)
                for name in missing:
                    trial[name] = round(self._rig.compare(name, candidate, other), 3)
                    self._save()
                    if trial[name] < _TOO_SLOW:
                        break
            except RuntimeError as error:
                trial["failed"] = str(error).strip().partition("\n")[0]
            finally:
                self._record.trying = None
                self._save()
        return {} if "failed" in trial else {name: trial[name] for name in self._rig.names if name in trial}
