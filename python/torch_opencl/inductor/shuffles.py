"""Loads of vectors whose lanes do not lie beside each other."""


def shuffled(load: str, where: str, kind: str, stride: int, wide: int) -> str:
    """Whole vectors, whose lanes are put in order, instead of a load for each lane.

    No vector reaches beyond the elements that are asked for.

    Args:
        load: the function that loads a vector.
        where: the address of the first lane.
        kind: the type of the vector, for strides of 2.
        stride: -1 or 2, by how much the address grows from lane to lane.
        wide: lanes, a power of two up to 16.

    Returns:
        An expression.
    """
    last = wide - 1
    if stride == -1:
        return f"{load}({where} - {last}).s{'fedcba9876543210'[-wide:]}"
    return f"({kind})({load}({where}).even, {load}({where} + {last}).odd)"
