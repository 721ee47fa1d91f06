"""Case number N of a seed."""

from collections.abc import Callable
from random import Random

import torch

from fuzz.case import Case, Operand, resolve
from fuzz.families import family
from fuzz.material import elements, laid_out, shape
from fuzz.pointwise import pointwise, reduction
from fuzz.samples import sample

SOURCES: tuple[Callable[[Random], Case | None], ...] = (
    pointwise, pointwise, pointwise, reduction, family, family, family, sample, sample, sample,
)  # fmt: skip


def make(seed: int, number: int, only: str | None = None) -> Case | None:
    """Make a case.

    Args:
        seed: the seed of a run.
        number: the number of the case in the run.
        only: the function that all cases call, with one or two tensors (for `fuzz.planted`); None for any.

    Returns:
        The case, equal for equal arguments; None if it does not exist.
    """
    rng = Random(f"{seed}:{number}")
    if only:
        sizes = shape(rng, 3, 1)
        count = resolve(only).__code__.co_argcount
        return Case(only, tuple(Operand(laid_out(rng, elements(rng, sizes, torch.float32))) for _ in range(count)))
    return rng.choice(SOURCES)(rng)
