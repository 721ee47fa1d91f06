"""The models, by library. A module here imports its library only when a model of it is built."""

from models.case import Case
from models.catalogue import detection, diffusion, graphs, images, language, plain, sound_and_vision

_MODULES = (plain, images, detection, language, sound_and_vision, diffusion, graphs)
_CASES = {case.name: case for module in _MODULES for case in module.cases()}


def names() -> list[str]:
    """Name all models.

    Returns:
        Names such as "timm/vit".
    """
    return list(_CASES)


def case(name: str) -> Case:
    """Find a model.

    Args:
        name: its name.

    Returns:
        The model.
    """
    return _CASES[name]
