"""Replaces functions of other libraries, either all that a library needs or none, and restores them."""

import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["Changes"]

# Makes a replacement from an original.
Replace = Callable[[Any], Any]

# Stands for an attribute that a class only inherits.
_ABSENT: Any = object()


@dataclass(frozen=True)
class _Exchange:
    """An attribute's current value and the other one; ``is_everywhere`` if importers' names are exchanged as well."""

    owner: Any
    attribute: str
    present: Any
    other: Any
    is_everywhere: bool


@dataclass
class Changes:
    """The replacements for a library, and those that have been made.

    Args:
        distribution: the library's name in pip.
        names: for each ``module:name`` (with dots for a name of a class) the function that makes its replacement. The
            replacement of a property or of a ``cached_property`` is made from its function.
        attributes: for each ``module:name`` the function that makes its replacement. Only this attribute is replaced:
            the object may have other names as well. A class may inherit the original.
    """

    distribution: str
    names: Mapping[str, Replace]
    attributes: Mapping[str, Replace] = field(default_factory=dict)
    done: list["_Exchange"] = field(default_factory=list)

    def apply(self) -> None:
        """Replace all names; do nothing if that has been done.

        Raises:
            ImportError: the library is not installed.
            RuntimeError: this version of it lacks one of the names; nothing has been replaced.
        """
        if self.done:
            return
        # All replacements are made before the first one is installed, so that a failure changes nothing.
        made = []
        for name, make in self.names.items():
            owner, attribute = self._find(name)
            original = vars(owner).get(attribute, _ABSENT)
            # Only attributes that a class defines can be replaced in it, not inherited ones.
            if original is _ABSENT:
                raise self._lacks(name.replace(":", "."))
            made.append(_Exchange(owner, attribute, original, _made_of(original, make), is_everywhere=True))
        for name, make in self.attributes.items():
            owner, attribute = self._find(name)
            original = vars(owner).get(attribute, _ABSENT)
            replacement = make(getattr(owner, attribute))
            made.append(_Exchange(owner, attribute, original, replacement, is_everywhere=False))
        _exchange(made)
        self.done = made

    def undo(self) -> None:
        """Restore the originals."""
        done, self.done = self.done, []
        _exchange([replace(each, present=each.other, other=each.present) for each in reversed(done)])

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
        if owner is None or not hasattr(owner, attribute):
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


def _exchange(exchanges: Sequence[_Exchange]) -> None:
    """Exchange current values for the others, also in modules that have imported them under any name."""
    everywhere = {}
    for each in exchanges:
        if each.other is _ABSENT:
            delattr(each.owner, each.attribute)
        else:
            setattr(each.owner, each.attribute, each.other)
        if each.is_everywhere and not isinstance(each.owner, type):
            everywhere[id(each.present)] = each
    for module in list(sys.modules.values()) if everywhere else []:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            exchange = everywhere.get(id(value))
            if exchange is not None and value is exchange.present:
                setattr(module, name, exchange.other)


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
