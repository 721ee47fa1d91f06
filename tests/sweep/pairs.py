"""Pairs of a subject, which is an operator, a module or an optimizer, and a dtype."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256

import torch
from float64 import computed
from op_table import DTYPES
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

from sweep.planted import PLANTED

DTYPE_NAMES = tuple(str(dtype).removeprefix("torch.") for dtype in DTYPES["all"])
KINDS = ("op", "module", "optim")
# Optimizers accept any floating-point parameters.
OPTIM_DTYPES = frozenset({torch.float32, torch.float64})

OPS = {info.full_name: info for info in op_db}
MODULES = {info.name: info for info in module_db}
OPTIMIZERS = {info.name: info for info in optim_db}


@dataclass(frozen=True, order=True)
class Pair:
    """A subject and a dtype.

    Attributes:
        kind: `op`, `module` or `optim`; `planted` in tests of this tool.
        name: its name in PyTorch's database.
        dtype: the dtype's name.
    """

    kind: str
    name: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.dtype}"

    @property
    def torch_dtype(self) -> torch.dtype:
        """The torch.dtype."""
        return getattr(torch, self.dtype)


def parse(text: str) -> Pair:
    """Parse a pair.

    Args:
        text: kind, name and dtype.

    Returns:
        The pair.
    """
    kind, rest = text.split(" ", 1)
    name, dtype = rest.rsplit(" ", 1)
    return Pair(kind, name, dtype)


def every_pair() -> list[Pair]:
    """List the pairs that PyTorch's databases have for the CPU.

    Returns:
        The pairs by subject, with the dtypes of each in a fixed order.
    """
    found = [
        Pair(kind, name, str(dtype).removeprefix("torch."))
        for kind, name, dtypes in _subjects()
        for dtype in computed(DTYPES["all"])
        if dtype in dtypes
    ]
    return list(dict.fromkeys(found))


def _subjects() -> Iterable[tuple[str, str, Iterable[torch.dtype]]]:
    for name, info in sorted(OPS.items()):
        yield "op", name, info.supported_dtypes("cpu")
    for name, info in sorted(MODULES.items()):
        yield "module", name, info.supported_dtypes("cpu")
    for name in sorted(OPTIMIZERS):
        yield "optim", name, OPTIM_DTYPES


def planted_pairs(names: Iterable[str]) -> list[Pair]:
    """List planted mistakes.

    Args:
        names: some of PLANTED.

    Returns:
        A pair for each.
    """
    return [Pair("planted", name, "float32") for name in names if name in PLANTED]


def chosen(pairs: list[Pair], words: Iterable[str], sample: int | None, seed: int) -> list[Pair]:
    """Choose pairs.

    Args:
        pairs: all of them.
        words: kinds, dtypes, and patterns of names; a pair has to match one of each sort that is given.
        sample: the maximum number of pairs; None for all.
        seed: the seed of the selection. It is made by hash: new operators change little of it.

    Returns:
        The chosen pairs, in their order.
    """
    words = list(words)
    kinds = [word for word in words if word in KINDS]
    dtypes = [word for word in words if word in DTYPE_NAMES]
    names = [word for word in words if word not in KINDS and word not in DTYPE_NAMES]
    fitting = [
        pair
        for pair in pairs
        if (not kinds or pair.kind in kinds)
        and (not dtypes or pair.dtype in dtypes)
        and (not names or any(fnmatch(pair.name, name) for name in names))
    ]
    if sample is None or sample >= len(fitting):
        return fitting
    drawn = set(sorted(fitting, key=lambda pair: sha256(f"{seed} {pair}".encode()).digest())[:sample])
    return [pair for pair in fitting if pair in drawn]
