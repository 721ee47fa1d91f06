"""Runs the groups in parallel, judges the counts, and prints them, worst first."""

import argparse
import json
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .allowed import ALLOWED, Allowed
from .calls import GROUPS
from .measure import Access, MissingError, Use, build_plugin, run

# An access may touch twice the sectors that its bytes need: unaligned rows and edges take one more sector than aligned
# ones.
LEAST_EFFICIENCY = 0.5
# A smaller share of a kernel's sectors costs little, however it is read: edges, and values that a row shares.
LEAST_SHARE = 0.1
# A work-item with this many loads and stores, which may take half a microsecond each, runs a long loop: then at least a
# warp must share the work.
LONG = 1000
LEAST_PARALLEL = 32


@dataclass
class Finding:
    """A kernel use that is less efficient than required.

    Args:
        use: the use.
        kind: "load", "store", "loop" or "group".
        value: the efficiency, or the work-items that share the work.
        text: a sentence for the report.
    """

    use: Use
    kind: str
    value: float
    text: str

    def allowed(self) -> Allowed | None:
        """Return the exception that covers it, if any."""
        exceptions = ALLOWED.get(self.use.group, [])
        return next((a for a in exceptions if a.covers(self.use.kernel, self.use.call, self.kind, self.value)), None)


def judge(uses: Iterable[Use]) -> list[Finding]:
    """Find what is wrong, allowed or not.

    Args:
        uses: the uses of kernels.

    Returns:
        The findings.
    """
    findings = []
    for use in uses:
        for access in use.accesses.values():
            if access.efficiency < LEAST_EFFICIENCY and access.sectors >= LEAST_SHARE * use.sectors:
                kind = "store" if access.stores else "load"
                findings.append(
                    Finding(use, kind, access.efficiency, f"{use.call}: {use.kernel}: {describe(access, use)}")
                )
        if use.narrow > LEAST_SHARE * use.total:
            text = (
                f"{use.call}: {use.kernel}: groups of fewer items than a warp do {use.narrow} of {use.total} accesses"
            )
            findings.append(Finding(use, "group", 0, text))
        if use.longest >= LONG and use.parallel < LEAST_PARALLEL:
            text = (
                f"{use.call}: {use.kernel}: one work-item does {use.longest} loads and stores, "
                f"as if {use.parallel:.0f} items did all of {use.total}"
            )
            findings.append(Finding(use, "loop", use.parallel, text))
    return findings


def stale(group: str, findings: Iterable[Finding]) -> list[str]:
    """List the exceptions that are not needed any more.

    Args:
        group: the group of calls.
        findings: of a run of all calls of the group.

    Returns:
        A line for each kind that an exception allows and no finding has.
    """
    needed = {(finding.allowed(), finding.kind) for finding in findings}
    return [
        f"{group}: no {kind} of {allowed.kernel} in {allowed.call!r} still needs its exception"
        for allowed in ALLOWED.get(group, [])
        for kind in allowed.kinds.split()
        if (allowed, kind) not in needed
    ]


def describe(access: Access, use: Use) -> str:
    """Describe how a line accesses memory.

    Args:
        access: the accesses of the line.
        use: the use of its kernel.

    Returns:
        A line of text.
    """
    return (
        f"{'store' if access.stores else 'load'} {access.efficiency:.0%}, "
        f"{access.sectors / access.requests:.1f} sectors a request, {access.requests} requests, "
        f"{access.sectors / use.sectors:.0%} of the sectors, {use.cached:.0%} if cached; {' > '.join(access.where)}"
    )


def table(uses: list[Use]) -> list[str]:
    """Make a line for each kernel of each call, with its worst significant access, worst first.

    Args:
        uses: the uses of kernels.

    Returns:
        The lines.
    """
    rows = []
    for use in uses:
        matters = [a for a in use.accesses.values() if a.sectors >= LEAST_SHARE * use.sectors] or [
            *use.accesses.values()
        ]
        if not matters:
            continue
        worst = min(matters, key=lambda access: access.efficiency)
        total = sum(a.least for a in use.accesses.values()) / max(use.sectors, 1)
        place = " > ".join(worst.where)
        rows.append((worst.efficiency, f"{use.kernel:<26} {use.call:<34} {worst.efficiency:6.0%} "
                     f"{'store' if worst.stores else 'load':<5} {worst.sectors / worst.requests:7.1f} {total:6.0%} "
                     f"{use.cached:6.0%} {use.longest:7} {use.parallel:8.0f}  {place}"))  # fmt: skip
    columns = f"{'kernel':<26} {'call':<34} {'worst':>6} {'':<5} {'sec/req':>7}"
    heading = f"{columns} {'all':>6} {'cached':>6} {'longest':>7} {'parallel':>8}  line"
    return [heading, *(line for _, line in sorted(rows))]


def measure_all(groups: list[str], names: list[str], jobs: int) -> list[Use]:
    """Run groups of calls under Oclgrind.

    Args:
        groups: keys of ``GROUPS``.
        names: the calls to run; empty for all.
        jobs: how many groups run at a time.

    Returns:
        Each call's use of each of its kernels.

    Raises:
        MissingError: Oclgrind or a build dependency of its plugin is not installed.
        RuntimeError: a call failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plugin = build_plugin(folder)
        with ThreadPoolExecutor(jobs) as pool:
            return [use for part in pool.map(lambda group: run(plugin, group, names, folder), groups) for use in part]


def main() -> int:
    """Run the command line.

    Returns:
        The exit status: 1 if a kernel is worse than allowed, 2 if something is not installed.
    """
    parser = argparse.ArgumentParser(prog="tests/coalescing", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--call", action="append", default=[], help="only the call of this name; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="groups at a time")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    options = parser.parse_args()
    if unknown := [group for group in options.groups if group not in GROUPS]:
        parser.error(f"no such group: {', '.join(unknown)}")
    try:
        uses = measure_all(options.groups or list(GROUPS), options.call, options.jobs)
    except MissingError as error:
        print(f"coalescing: {error}")
        return 2
    print("\n".join(table(uses)))
    findings = judge(uses)
    if options.json:
        options.json.write_text(json.dumps([as_json(use) for use in uses], indent=1) + "\n")
    reasons = [finding.allowed() for finding in findings]
    wrong = sum(reason is None for reason in reasons)
    for finding, reason in zip(findings, reasons, strict=True):
        print(f"allowed {finding.text}\n        ({reason.reason})" if reason else f"WRONG   {finding.text}")
    unneeded = []
    if not options.call:
        for group in sorted({use.group for use in uses}):
            unneeded += stale(group, [finding for finding in findings if finding.use.group == group])
        print("\n".join(unneeded))
    kernels = len({use.kernel for use in uses})
    print(f"{len(uses)} uses of {kernels} kernels; {len(findings)} findings, {wrong} not allowed")
    return 1 if wrong or unneeded else 0


def as_json(use: Use) -> dict[str, object]:
    """Convert a use for JSON.

    Args:
        use: the use of a kernel.

    Returns:
        Its fields, and the accesses as a list.
    """
    accesses = [{**vars(access), "efficiency": access.efficiency} for access in use.accesses.values()]
    return {**vars(use), "accesses": accesses, "parallel": use.parallel, "cached": use.cached}
