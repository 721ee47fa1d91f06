"""Shrinks a case that shows a mistake: fewer arguments, simpler layouts and values, shorter dimensions."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from fuzz.case import Case, Operand


def shrink(case: Case, shows: Callable[[Case], bool], seconds: float) -> Case:
    """Make a case smaller as long as it shows the same mistake.

    Args:
        case: a case that shows it.
        shows: whether another case shows it.
        seconds: how long to try.

    Returns:
        A case that shows it and that no single step makes smaller, or the smallest one when time was up.
    """
    until = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(case):
            if time.monotonic() > until:
                return case
            if shows(candidate):
                case, smaller = candidate, True
                break
    return case


def candidates(case: Case) -> Iterator[Case]:
    """List replacements of a case.

    Args:
        case: the case.

    Returns:
        Simpler cases, the greatest steps first.
    """
    yield from shorter(case)
    for key in case.kwargs:
        yield replace(case, kwargs={name: value for name, value in case.kwargs.items() if name != key})
    if case.gradients:
        yield replace(case, gradients=False)
    operands = case.operands
    for number, operand in enumerate(operands):
        for plainer in plainer_operands(operand):
            yield with_operand(case, number, plainer)


def with_operand(case: Case, number: int, operand: Operand) -> Case:
    """Replace one operand.

    Args:
        case: the case.
        number: its position.
        operand: the new one.

    Returns:
        The new case.
    """
    old = case.operands[number]
    return case.with_operands(lambda other: operand if other is old else other)


def shorter(case: Case) -> Iterator[Case]:
    """Shorten dimensions: all of one size together in all operands, as their sizes must agree; and each alone.

    Args:
        case: the case.

    Returns:
        Cases with fewer elements.
    """
    sizes = {size for operand in case.operands for size in operand.tensor.shape if size > 1}
    for size in sorted(sizes, reverse=True):
        for length in sorted({1, size // 2, size - 1}):
            for last in (False, True):
                yield case.with_operands(lambda one, s=size, n=length, e=last: cut(one, s, n, e))
    for number, operand in enumerate(case.operands):
        for dim, size in enumerate(operand.tensor.shape):
            for length in sorted({1, size // 2, size - 1}) if size > 1 else ():
                part = operand.tensor.narrow(dim, 0, length)
                yield with_operand(case, number, replace(operand, tensor=compact(part)))
        if operand.tensor.dim() and operand.tensor.shape[0] == 1:
            yield with_operand(case, number, replace(operand, tensor=compact(operand.tensor[0])))


def cut(operand: Operand, size: int, length: int, last: bool) -> Operand:
    """Shorten the dimensions of one size.

    Args:
        operand: an operand.
        size: which dimensions.
        length: their new size.
        last: whether to keep the last elements rather than the first.

    Returns:
        The operand itself if it has no such dimension.
    """
    tensor = operand.tensor
    for dim, own in enumerate(tensor.shape):
        if own == size:
            tensor = tensor.narrow(dim, size - length if last else 0, length)
    return operand if tensor is operand.tensor else replace(operand, tensor=compact(tensor))


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """Copy part of a tensor, without the memory before and after it.

    Args:
        tensor: a view.

    Returns:
        The same elements with the same strides.
    """
    if tensor.numel() == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = min(tensor.storage_offset(), 1)
    room = torch.ones(start + reach + 1, dtype=tensor.dtype)
    flat = torch.as_strided(tensor, (reach + 1,), (1,))
    room[start:] = flat
    return room.as_strided(tensor.shape, tensor.stride(), start)


def plainer_operands(operand: Operand) -> Iterator[Operand]:
    """List simpler operands of the same shape.

    Args:
        operand: the operand.

    Returns:
        Without views, gradients and strides; with simple values.
    """
    tensor = operand.tensor
    if operand.view:
        yield replace(operand, view="")
    if operand.on_cpu:
        yield replace(operand, on_cpu=False)
    if operand.requires_grad:
        yield replace(operand, requires_grad=False)
    plain = tensor.clone(memory_format=torch.contiguous_format)
    if not tensor.is_contiguous() or tensor.untyped_storage().nbytes() != plain.untyped_storage().nbytes():
        yield replace(operand, tensor=plain)
    # Zeros are simpler than ones: without this order, shrinking would alternate between the two for ever.
    for number in (0, 1):
        if bool((plain == number).all()):
            break
        yield replace(operand, tensor=torch.full_like(plain, number))
    if plain.dtype.is_floating_point and not torch.equal(plain, plain.round()) and bool(plain.isfinite().all()):
        yield replace(operand, tensor=plain.round())
    if 1 < tensor.numel() <= 64:
        for place in range(tensor.numel()):
            for number in (0, 1):
                value = plain.view(-1)[place]
                if value.item() not in (0, number):
                    simpler = plain.clone()
                    simpler.view(-1)[place] = number
                    yield replace(operand, tensor=simpler)
