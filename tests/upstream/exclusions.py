"""Tests of PyTorch that are not run, each with its reason."""

from fnmatch import fnmatch

# By a pattern of "file Class::test", without the device: why.
EXCLUSIONS: dict[str, str] = {}


def reason(test: str) -> str | None:
    """Say why a test is not run.

    Args:
        test: file, class and name.

    Returns:
        The reason; None where it is run.
    """
    return next((why for pattern, why in EXCLUSIONS.items() if fnmatch(test, pattern)), None)
