"""Random numbers: the default generator of each device and its seed."""

from collections.abc import Iterable

import torch

from torch_opencl._lazy import _lazy_init, device_count, seed_when_initialized
from torch_opencl._load import native
from torch_opencl._utils import DeviceLike, _get_device_index
from torch_opencl.device import current_device

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def default_generators() -> tuple[torch.Generator, ...]:
    """Return the default generator of every device; ``torch.opencl.default_generators`` is this tuple.

    Returns:
        The generators by device index.

    Raises:
        RuntimeError: there is no OpenCL device.
    """
    _lazy_init()
    return tuple(native().default_generator(index) for index in range(device_count()))


def get_rng_state(device: DeviceLike = "opencl") -> torch.Tensor:
    """Return the state of a device's default generator.

    Args:
        device: the device; the current one by default.

    Returns:
        A tensor of bytes on the CPU.

    Raises:
        RuntimeError: there is no such device.
    """
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of the default generators of all devices.

    Returns:
        A tensor of bytes for each device.
    """
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "opencl") -> None:
    """Set the state of a device's default generator.

    Args:
        new_state: a result of :func:`get_rng_state`.
        device: the device; the current one by default.

    Raises:
        RuntimeError: there is no such device, or ``new_state`` is not a state.
    """
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of the default generators of all devices.

    Args:
        new_states: a result of :func:`get_rng_state_all`.

    Raises:
        RuntimeError: there are fewer devices than states, or one is not a state.
    """
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device's default generator.

    Before the first use of OpenCL the seed waits for it; without a device it has no effect.

    Args:
        seed: the seed.
    """
    seed = int(seed)
    seed_when_initialized("current", lambda: _seed(_generator("opencl"), seed))


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices, as :func:`torch.manual_seed` does too.

    Before the first use of OpenCL the seed waits for it; without a device it has no effect.

    Args:
        seed: the seed.
    """
    seed = int(seed)

    def apply() -> None:
        for generator in default_generators():
            generator.manual_seed(seed)

    seed_when_initialized("all", apply)


def seed() -> int:
    """Seed the current device's default generator with a random number.

    Returns:
        The seed.

    Raises:
        RuntimeError: there is no OpenCL device.
    """
    return _generator("opencl").seed()


def seed_all() -> None:
    """Seed the default generators of all devices with one random number.

    Raises:
        RuntimeError: there is no OpenCL device.
    """
    manual_seed_all(seed())


def initial_seed() -> int:
    """Return the seed of the current device's default generator.

    Returns:
        The seed.

    Raises:
        RuntimeError: there is no OpenCL device.
    """
    return _generator(current_device()).initial_seed()


def _seed(generator: torch.Generator, seed: int) -> None:
    generator.manual_seed(seed)


def _generator(device: DeviceLike) -> torch.Generator:
    _lazy_init()
    return native().default_generator(_get_device_index(device, optional=True))
