"""Loads of vectors whose lanes are not adjacent in memory."""


def shuffled(load: str, where: str, kind: str, stride: int, wide: int) -> str:
    """Load whole vectors and shuffle their lanes, instead of one load per lane.

    No vector reaches beyond the requested elements.

    Args:
        load: the function that loads a vector.
        where: the address of the first lane.
        kind: the type of the vector, for strides of 2.
        stride: from lane to lane, -1 or 2.
        wide: lanes, a power of two up to 16.

    Returns:
        An expression.
    """
    last = wide - 1
    if stride == -1:
        return f"{load}({where} - {last}).s{'fedcba9876543210'[-wide:]}"
    return f"({kind})({load}({where}).even, {load}({where} + {last}).odd)"
