"""The summary of a run, as lines of text."""

from collections import Counter
from collections.abc import Iterator

from sweep import known
from sweep.results import FINDINGS, RIGHT, Record, by_status

# Percentages: the least of pairs that are right, and the most that may fall back.
LEAST_RIGHT, MOST_FALLBACK = 99.8, 1.0
SLOWEST = 10
# The maximum number of pairs to name in one finding.
NAMED = 8


def unexpected(records: list[Record]) -> list[tuple[Record, str, str, str]]:
    """List findings without a reason in known.py.

    Args:
        records: all records.

    Returns:
        Record, check, kind and text of each finding.
    """
    return [
        (record, check, kind, text)
        for record in records
        if record.works_on_cpu
        for check, kind, text in record.findings
        if known.reason(record.pair, check) is None
    ]


def lines(records: list[Record]) -> Iterator[str]:
    """Summarise.

    Args:
        records: all.

    Yields:
        Lines.
    """
    counted = [record for record in records if record.works_on_cpu]
    if not counted:
        yield "no pair works on the CPU"
        return
    yield from _findings(counted)
    yield from _fallbacks(counted)
    yield from _slowest(counted)
    statuses = by_status(counted)
    counts = {status: len(statuses.get(status, ())) for status in (*RIGHT, *FINDINGS)}
    right = 100 * sum(counts[status] for status in RIGHT) / len(counted)
    fallback = 100 * sum(bool(record.fallbacks) for record in counted) / len(counted)
    reasons = sum(known.reason(r.pair, check) is not None for r in counted for check, _, _ in r.findings)
    yield ""
    yield f"{len(counted)} pairs work on the CPU, {len(records) - len(counted)} others are not counted"
    yield ", ".join(f"{number} {status}" for status, number in counts.items())
    yield f"{right:.2f} % right (at least {LEAST_RIGHT}), {fallback:.2f} % fall back (at most {MOST_FALLBACK})"
    yield f"{len(unexpected(counted))} findings without a reason in tests/sweep/known.py, {reasons} with one"


def _findings(records: list[Record]) -> Iterator[str]:
    """Findings by kind, subject and check, with all their dtypes."""
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for record in records:
        subject, dtype = record.pair.rsplit(" ", 1)
        for check, kind, text in record.findings:
            groups.setdefault((kind, subject, check), []).append((dtype, text))
    for (kind, subject, check), found in sorted(groups.items(), key=lambda item: FINDINGS.index(item[0][0])):
        dtypes = ", ".join(dtype for dtype, _ in found)
        why = known.reason(f"{subject} {found[0][0]}", check)
        yield f"{kind:11} {subject} {check} ({dtypes}): {why or found[0][1]}"


def _fallbacks(records: list[Record]) -> Iterator[str]:
    """The operators that fall back, the most frequent first."""
    subjects: dict[str, Counter[str]] = {}
    for record in records:
        for name in record.fallbacks:
            subjects.setdefault(name, Counter())[record.pair.rsplit(" ", 1)[0]] += 1
    for name, pairs in sorted(subjects.items(), key=lambda item: -item[1].total()):
        named = ", ".join(pair for pair, _ in pairs.most_common(NAMED))
        more = f" and {len(pairs) - NAMED} more" if len(pairs) > NAMED else ""
        yield f"fallback    {name}: {pairs.total()} pairs of {named}{more}"


def _slowest(records: list[Record]) -> Iterator[str]:
    """Large calls that are slowest relative to the CPU."""
    timed = [record for record in records if record.seconds]
    ratios = sorted(timed, key=lambda record: -record.seconds["device"] / record.seconds["cpu"])
    for record in ratios[:SLOWEST]:
        device, cpu = (1e3 * record.seconds[name] for name in ("device", "cpu"))
        size = f"{record.seconds['elements']} elements"
        yield f"slowest     {record.pair}: {device / cpu:.2f} x CPU, {device:.2f} ms and {cpu:.2f} ms, {size}"
