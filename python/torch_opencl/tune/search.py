"""The search: group by group, a candidate replaces what is used if it is measured to be faster, twice."""

import math
from collections.abc import Callable, Iterator
from typing import Protocol

from torch_opencl.tune.record import Record, Values
from torch_opencl.tune.space import Groups

# Speedup that a candidate needs, all work taken together: more than the noise between equal ones on a machine that
# does other things besides.
_GAIN = 1.02
# Least speedup in one kind of work: it may lose so much there.
_LEAST = 0.95
# A candidate that is so slow in one is not timed with the others.
_HOPELESS = 0.8


class Rig(Protocol):
    """A source of measurements."""

    names: list[str]

    def compare(self, name: str, candidate: Values, other: Values) -> float:
        """Return how many times as fast a candidate does the work of that name; RuntimeError where it cannot."""

    def verify(self, candidate: Values) -> None:
        """Raise RuntimeError where a candidate computes something wrong."""


def mean(ratios: dict[str, float]) -> float:
    """Return the geometric mean.

    Args:
        ratios: for each kind of work, how many times as fast it is.

    Returns:
        The mean; 1 of none.
    """
    return math.exp(sum(map(math.log, ratios.values())) / len(ratios)) if ratios else 1.0


def differences(values: Values, defaults: Values) -> str:
    """Return how parameters differ from those that a device starts with.

    Args:
        values: the parameters.
        defaults: those.

    Returns:
        ``"block_k=256 tile_rows=4"``, or ``"defaults"``.
    """
    changed = [f"{name}={value}" for name, value in sorted(values.items()) if value != defaults[name]]
    return " ".join(changed) or "defaults"


class Search:
    """A search whose comparisons are kept in a record, and not made again where they are there.

    Args:
        rig: what measures.
        record: what is known. ``values`` are those that the search ends with.
        save: called whenever the record has changed.
    """

    def __init__(self, rig: Rig, record: Record, save: Callable[[], None]):
        self._rig, self._record, self._save = rig, record, save
        if record.trying is not None:
            record.trials[record.trying] = {"failed": "the process ended while this was tried"}
            record.trying = None

    def run(self, groups: Groups) -> Iterator[None]:
        """Try all candidates; what is found is used from then on.

        Args:
            groups: the candidates.

        Yields:
            After each.
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
                # The best of many is lucky, too.
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
        """Return how many times as fast a candidate is in each kind of work; not all of it where it is no good."""
        defaults = self._record.defaults
        key = f"{prefix}{differences(candidate, defaults)} / {differences(other, defaults)}"
        trial = self._record.trials.setdefault(key, {})
        if "failed" in trial:
            return {}
        missing = [name for name in self._rig.names if name not in trial]
        if missing and all(ratio >= _HOPELESS for ratio in trial.values()):
            self._record.trying = key
            self._save()
            try:
                if verify:
                    self._rig.verify(candidate)
                for name in missing:
                    trial[name] = round(self._rig.compare(name, candidate, other), 3)
                    self._save()
                    if trial[name] < _HOPELESS:
                        break
            except RuntimeError as error:
                trial["failed"] = str(error).strip().partition("\n")[0]
            finally:
                self._record.trying = None
                self._save()
        return {} if "failed" in trial else {name: trial[name] for name in self._rig.names if name in trial}
