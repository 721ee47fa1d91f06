"""Results of tests on the device, and of those that fail there on the CPU."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from upstream.exclusions import reason

# Percent of what the CPU passes.
LEAST_PASSED = 98.0
BAD = ("failed", "crash", "hang")


@dataclass
class Result:
    """Results of a test.

    Attributes:
        file: in PyTorch's folder of tests.
        test: class and name, without the device.
        runs: by `device` and `cpu`: `outcome`, `text`, `seconds` and `fallbacks`. The CPU runs what the device fails.
    """

    file: str
    test: str
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """File and test."""
        return f"{self.file} {self.test}"

    @property
    def outcome(self) -> str:
        """`passed`, `skipped`, `failed`, `crash`, `hang`; `not on the CPU` where that does not pass it either."""
        outcome = self.runs["device"]["outcome"]
        if outcome not in BAD or "cpu" not in self.runs:
            return outcome
        return outcome if self.runs["cpu"]["outcome"] == "passed" else "not on the CPU"


def lines(results: Iterable[Result], refused: dict[str, str]) -> Iterator[str]:
    """Summarise.

    Args:
        results: of tests that the device ran.
        refused: files that cannot be imported, with the error.

    Yields:
        Lines.
    """
    results = sorted(results, key=lambda result: result.name)
    for result in results:
        if result.outcome in BAD:
            yield f"{result.outcome:7} {result.name}: {result.runs['device']['text']}"
    fallbacks = Counter(name for result in results for name in result.runs["device"].get("fallbacks", ()))
    yield from (f"fallback {name}: {count} tests" for name, count in fallbacks.most_common())
    yield from (f"not imported: {file}: {error}" for file, error in refused.items())
    yield ""
    for file in dict.fromkeys(result.file for result in results):
        of_file = [result for result in results if result.file == file]
        yield f"{file}: {_counts(of_file)}; {passed(of_file):.2f} %"
    yield f"all: {_counts(results)}"
    yield f"{passed(results):.2f} % of what the CPU passes (at least {LEAST_PASSED})"


def passed(results: Iterable[Result]) -> float:
    """Say how much of what the CPU passes the device does.

    Args:
        results: of tests.

    Returns:
        Percent. What the device passes the CPU is taken to pass.
    """
    outcomes = Counter(result.outcome for result in results)
    counted = sum(outcomes[outcome] for outcome in ("passed", *BAD))
    return 100 * outcomes["passed"] / counted if counted else 100.0


def _counts(results: Iterable[Result]) -> str:
    outcomes = Counter(result.outcome for result in results)
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())


def excluded(file: str, tests: Iterable[str]) -> dict[str, str]:
    """Find the tests that are not run.

    Args:
        file: in PyTorch's folder of tests.
        tests: class and name of each.

    Returns:
        The reasons by test.
    """
    found = {test: reason(f"{file} {test}") for test in tests}
    return {test: why for test, why in found.items() if why is not None}
