"""The values to try, for each class of devices: groups of parameters, in order. Groups are nearly independent.

A candidate names the parameters that it changes. Native code rejects values that a device does not support.
"""

Candidate = dict[str, int]
Groups = list[list[Candidate]]


def _each(name: str, *values: int) -> list[Candidate]:
    return [{name: value} for value in values]


def _tiles(vector_bytes: int, *shapes: tuple[int, int]) -> list[Candidate]:
    return [{"vector_bytes": vector_bytes, "tile_rows": rows, "tile_vectors": vectors} for rows, vectors in shapes]


def _squares(*shapes: tuple[int, int]) -> list[Candidate]:
    return [{"side": side, "item": item} for side, item in shapes]


_KIB = 1 << 10
_FULL: dict[str, Groups] = {
    "cpu": [
        # The registers hold the tile and a step's operands.
        _tiles(64, (4, 3), (8, 2), (8, 3), (12, 2), (16, 1)) + _tiles(32, (4, 2), (4, 3), (8, 1), (8, 3), (12, 1)),
        # L1 holds strips of A and a panel of B for this many values of k.
        _each("block_k", 128, 192, 256, 384, 512, 768),
        # L2 holds this many bytes.
        _each("block_bytes", 192 * _KIB, 384 * _KIB, 720 * _KIB, 1080 * _KIB, 1440 * _KIB, 2880 * _KIB),
        _each("strip_rows", 16, 32, 64, 128, 256),
        _each("kept_bytes", 96 * _KIB, 192 * _KIB, 384 * _KIB, 768 * _KIB),
    ],
    "gpu": [
        _squares((8, 4), (8, 8), (16, 4), (16, 8), (32, 4)),
        _each("step_bytes", 32, 64, 128),
        _each("band", 2, 4, 8, 16, 32),
        _each("groups_per_unit", 1, 2, 4, 8),
    ],
}
_QUICK: dict[str, Groups] = {
    "cpu": [
        _tiles(64, (4, 3), (8, 3)) + _tiles(32, (4, 3)),
        _each("block_k", 256, 384),
        _each("block_bytes", 360 * _KIB, 720 * _KIB, 1440 * _KIB),
    ],
    "gpu": [_squares((8, 8), (16, 4), (16, 8)), _each("step_bytes", 32, 64)],
}


def groups_of(device_class: str, quick: bool) -> Groups:
    """Return the candidates.

    Args:
        device_class: ``"cpu"`` or ``"gpu"``.
        quick: return only those that differ most.

    Returns:
        The groups, in the order in which they are tried.
    """
    return (_QUICK if quick else _FULL)[device_class]
