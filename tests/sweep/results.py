"""Results of pairs, and their summary."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# Kinds of findings, the worst first.
FINDINGS = ("crash", "hang", "wrong", "error", "unsupported")
# How a pair that is right is computed.
RIGHT = ("native", "composed", "host", "fallback")


@dataclass
class Record:
    """Results of a pair.

    Attributes:
        pair: its name.
        checks: the worker's report on each, by name.
        seconds: the times of a large call, if there is one.
    """

    pair: str
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, float] | None = None

    @property
    def works_on_cpu(self) -> bool:
        """True if the CPU accepts some call of the pair."""
        return any(check["kind"] not in {"none", "cpu crash"} for check in self.checks.values())

    @property
    def findings(self) -> list[tuple[str, str, str]]:
        """Findings: check, kind and text, the worst first."""
        found = [(name, check["kind"], check["text"]) for name, check in self.checks.items()]
        found = [finding for finding in found if finding[1] in FINDINGS]
        return sorted(found, key=lambda finding: FINDINGS.index(finding[1]))

    @property
    def fallbacks(self) -> list[str]:
        """Operators that ran on the CPU because they have no kernel; without bad arguments, which have other dtypes."""
        good = [check for name, check in self.checks.items() if name != "errors"]
        return sorted({name for check in good for name in check.get("fallbacks", ())})

    @property
    def status(self) -> str:
        """The worst finding; for a pair that is right, how it is computed; `none` if the CPU accepts no call."""
        if not self.works_on_cpu:
            return "none"
        if self.findings:
            return self.findings[0][1]
        if self.fallbacks:
            return "fallback"
        return self.checks.get("forward", {}).get("computed_by") or "composed"


def by_status(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group records by status.

    Args:
        records: any.

    Returns:
        The records by status.
    """
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.status, []).append(record)
    return found
