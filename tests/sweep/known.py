"""Pairs that are not right, or fall back, each with its reason."""

from fnmatch import fnmatch

# By a pattern of "kind name dtype check": why. `fallback` stands in the place of the check for what falls back.
KNOWN: dict[str, str] = {
    "op kthvalue * vmap": "Of equal values any index will do; other checks compare the values at the indices.",
}


def reason(pair: str, check: str) -> str | None:
    """Say why a finding is expected.

    Args:
        pair: its name.
        check: the check, or `fallback`.

    Returns:
        The reason; None if there is none.
    """
    return next((why for pattern, why in KNOWN.items() if fnmatch(f"{pair} {check}", pattern)), None)
