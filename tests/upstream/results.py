"""Results of tests on the device, and of its failing tests on the CPU."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from upstream.exclusions import reason

# The least percentage of the tests that pass on the CPU.
LEAST_PASSED = 98.0
BAD = ("failed", "crash", "hang")


@dataclass
class Result:
    """Results of a test.

    Attributes:
        file: its path in PyTorch's folder of tests.
        test: class and name, without the device.
        runs: by `device` and `cpu` (only for failures): `outcome`, `text`, `seconds` and `fallbacks`.
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
        """`passed`, `skipped`, `failed`, `crash`, `hang`; or `not on the CPU` if the CPU does not pass it either."""
        outcome = self.runs["device"]["outcome"]
        if outcome not in BAD or "cpu" not in self.runs:
            return outcome
        return outcome if self.runs["cpu"]["outcome"] == "passed" else "not on the CPU"


def lines(results: Iterable[Result], refused: dict[str, str]) -> Iterator[str]:
    """Summarise.

    Args:
        results: the results of tests that the device ran.
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
    yield f"{passed(results):.2f} % of the tests that pass on the CPU (at least {LEAST_PASSED})"


def passed(results: Iterable[Result]) -> float:
    """Compute how many of the tests that pass on the CPU pass on the device.

    Args:
        results: the results of tests.

    Returns:
        A percentage. Tests that pass on the device are assumed to pass on the CPU.
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
        file: its path in PyTorch's folder of tests.
        tests: class and name of each test.

    Returns:
        The reasons by test.
    """
    found = {test: reason(f"{file} {test}") for test in tests}
    return {test: why for test, why in found.items() if why is not None}
