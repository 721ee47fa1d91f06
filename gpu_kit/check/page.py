"""The page: first the outcomes of all parts, then the errors, then the measurements."""

from collections.abc import Iterator

from gpu_kit.check.record import BAD, Part, Report

MOST_ERRORS = 25
RULE = "| --- "


def page_of(report: Report) -> str:
    """Return the report as Markdown.

    Args:
        report: the report, in any state.
    """
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# torch-opencl on {report.device or 'a device that has not been found'}"
    yield ""
    kit = ", ".join(f"{name} {value}" for name, value in report.kit.items())
    minutes = " + ".join(f"{minutes:g}" for minutes in report.minutes)
    yield f"Kit: {kit}. Started {report.started}, written {report.updated}; time limits: {minutes} min; {report.state}."
    yield from (f"- {note}" for note in report.notes)
    yield ""
    yield from _table(["part", "result", "seconds", "summary"], [_row(part) for part in report.parts.values()])
    for part in report.parts.values():
        errors = list(_errors(part))
        if errors:
            yield from ("", f"## Errors: {part.title}", "")
            yield from errors[:MOST_ERRORS]
            if len(errors) > MOST_ERRORS:
                yield f"- and {len(errors) - MOST_ERRORS} more in report.json"
    for part in report.parts.values():
        for table in part.tables:
            yield from ("", f"## {table['title']}", "")
            yield from _table(table["columns"], table["rows"])


def _row(part: Part) -> list[str]:
    status = f"**{part.status}**" if part.status in BAD else part.status
    unfinished = "" if part.finished or part.status in ("not run", "cut", "running") else ", not finished"
    return [part.title, status + unfinished, f"{part.seconds:.0f}" if part.seconds else "", part.summary]


def _errors(part: Part) -> Iterator[str]:
    """Each error as a list item, the worst first."""
    if part.tests:
        for how in ("crashed", "hung", "failed"):
            for name, lines in getattr(part.tests, how).items():
                yield _item(f"{how}: {name}", lines)
    for error in part.errors:
        yield _item(error["where"], error["lines"])


def _item(where: str, lines: list[str]) -> str:
    block = [f"- {where}", "", "  ```text", *(f"  {line.replace('```', '` ` `')}" for line in lines), "  ```"]
    return "\n".join(block if lines else block[:1])


def _table(columns: list[str], rows: list[list[object]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"{RULE * len(columns)}|"
    for row in rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return " ".join(str(value).split()).replace("|", "\\|")
