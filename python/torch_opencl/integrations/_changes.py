"""Replaces functions of other libraries, all of a library's or none, and puts them back."""

import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Changes"]

# Makes a replacement from an original.
Replace = Callable[[Any], Any]


@dataclass
class Changes:
    """The replacements to make in a library, and those that have been made.

    Args:
        distribution: the library's name as pip knows it.
        names: for each ``module:name`` (with dots where it is a name of a class) what makes its replacement. The
            replacement of a property or of a ``cached_property`` is made of its function.
    """

    distribution: str
    names: Mapping[str, Replace]
    done: list[tuple[Any, str, Any, Any]] = field(default_factory=list)

    def apply(self) -> None:
        """Replace all names; do nothing where that has been done.

        Raises:
            ImportError: the library is not installed.
            RuntimeError: this version of it lacks one of the names; nothing has been replaced.
        """
        if self.done:
            return
        found = [(*self._find(name), replace) for name, replace in self.names.items()]
        # All are made before the first one is put in place: a failure leaves the library as it was.
        made = []
        for owner, attribute, replace in found:
            original = vars(owner)[attribute]
            made.append((owner, attribute, original, _made_of(original, replace)))
        for owner, attribute, original, replacement in made:
            self.done.append((owner, attribute, original, replacement))
            _exchange(owner, attribute, original, replacement)

    def undo(self) -> None:
        """Put back what has been replaced."""
        while self.done:
            owner, attribute, original, replacement = self.done.pop()
            _exchange(owner, attribute, replacement, original)

    def _find(self, name: str) -> tuple[Any, str]:
        module, _, path = name.partition(":")
        try:
            owner: Any = importlib.import_module(module)
        except ModuleNotFoundError as failure:
            if failure.name is None or not f"{module}.".startswith(f"{failure.name}.") or "." not in failure.name:
                raise
            raise self._lacks(failure.name) from failure
        *classes, attribute = path.split(".")
        for each in classes:
            owner = getattr(owner, each, None)
        # Only a class's own attributes can be replaced in it, not inherited ones.
        if owner is None or attribute not in vars(owner):
            raise self._lacks(f"{module}.{path}")
        return owner, attribute

    def _lacks(self, name: str) -> RuntimeError:
        version = importlib.metadata.version(self.distribution)
        return RuntimeError(
            f"{self.distribution} {version} has no {name}, which this version of torch_opencl builds on. Nothing has "
            "been changed; docs/libraries.md names versions that were tried."
        )


def _made_of(original: Any, replace: Replace) -> Any:
    if isinstance(original, property):
        return property(functools.wraps(original.fget or replace)(replace(original.fget)), original.fset)
    if isinstance(original, functools.cached_property):
        made = functools.cached_property(functools.wraps(original.func)(replace(original.func)))
        made.__set_name__(None, original.attrname)  # type: ignore[arg-type]  # the owner is not used
        return made
    if isinstance(original, staticmethod):
        return staticmethod(functools.wraps(original.__func__)(replace(original.__func__)))
    return functools.wraps(original)(replace(original))


def _exchange(owner: Any, attribute: str, present: Any, other: Any) -> None:
    """Put another value in the place of the present one, in modules too that have imported it, by whatever name."""
    setattr(owner, attribute, other)
    for module in [] if isinstance(owner, type) else list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is present:
                setattr(module, name, other)


@contextmanager
def flagged(flags: Any) -> Iterator[None]:
    """Set ``flags.on`` for a block.

    Args:
        flags: a ``threading.local``.
    """
    before = getattr(flags, "on", False)
    flags.on = True
    try:
        yield
    finally:
        flags.on = before
