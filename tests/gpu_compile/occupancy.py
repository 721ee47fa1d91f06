"""The fraction of its waves that a GPU can keep resident, by registers, local memory and group size."""

from dataclasses import dataclass

WARP = 32


@dataclass(frozen=True)
class Multiprocessor:
    """Resources of one multiprocessor, from the tables of CUDA's programming guide for its compute capability.

    Attributes:
        warps: the most resident warps.
        groups: the most resident groups.
        shared: total bytes of local memory.
        reserved: bytes of it that each group takes besides its own.
        registers: total registers.
        registers_step: the allocation unit of a warp's registers.
        shared_step: the allocation unit of a group's bytes of local memory.
        warps_step: the number of schedulers that share the registers.
    """

    warps: int
    groups: int
    shared: int
    reserved: int
    registers: int = 65536
    registers_step: int = 256
    shared_step: int = 128
    warps_step: int = 4


MULTIPROCESSORS = {
    "sm_75": Multiprocessor(warps=32, groups=16, shared=64 << 10, reserved=0, shared_step=256),
    "sm_80": Multiprocessor(warps=64, groups=32, shared=164 << 10, reserved=1 << 10),
    "sm_90": Multiprocessor(warps=64, groups=32, shared=228 << 10, reserved=1 << 10),
}
# Waves per SIMD unit, of which the compiler reports how many can be resident; threads per execution unit for Intel.
SIMD_WAVES = {
    **{"gfx803": 10, "gfx900": 10, "gfx906": 10, "gfx90a": 8, "gfx942": 8},
    **{"gfx1030": 16, "gfx1100": 16, "gfx1201": 16},
    **{"skl": 7, "tgllp": 7, "acm-g10": 8, "pvc": 8},
}


def round_up(number: int, step: int) -> int:
    """Return the least multiple of `step` that is not less than `number`."""
    return -(-number // step) * step


def occupancy(chip: Multiprocessor, registers: int, local: int, group: int) -> float:
    """Return the fraction of a multiprocessor's warps that can be resident.

    Args:
        chip: its resources.
        registers: registers of a work-item.
        local: bytes of local memory of a group.
        group: work-items of a group.

    Returns:
        From 0, if not even one group fits, to 1.
    """
    warps = -(-max(group, 1) // WARP)
    per_warp = round_up(max(registers, 1) * WARP, chip.registers_step)
    by_registers = (chip.registers // per_warp) // chip.warps_step * chip.warps_step // warps
    by_local = (
        chip.shared // round_up(local + chip.reserved, chip.shared_step) if local + chip.reserved else chip.groups
    )
    groups = min(chip.groups, chip.warps // warps, by_registers, by_local)
    return groups * warps / chip.warps


def of_launch(target: str, registers: int, waves: int | None, local: int, group: int) -> float:
    """Return the fraction of a target's waves that a launch can keep resident.

    Args:
        target: the target's name.
        registers: registers of a work-item.
        waves: the number reported by the compiler, if any.
        local: bytes of local memory of a group.
        group: work-items of a group.

    Returns:
        From 0, if not even one group fits, to 1.
    """
    if waves is not None:
        return min(waves / SIMD_WAVES[target], 1)
    return occupancy(MULTIPROCESSORS[target], registers, local, group)
