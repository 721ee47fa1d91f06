"""Which part of its waves a GPU can keep, by registers, local memory and the size of groups."""

from dataclasses import dataclass

WARP = 32


@dataclass(frozen=True)
class Multiprocessor:
    """Resources of one multiprocessor, from the tables of CUDA's programming guide for its compute capability.

    Attributes:
        warps: it can keep.
        groups: it can keep.
        shared: bytes of local memory in all.
        reserved: bytes of it that each group costs besides its own.
        registers: in all.
        registers_step: a warp gets a multiple of so many.
        shared_step: a group gets a multiple of so many bytes.
        warps_step: registers are shared by so many schedulers.
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
# Waves of a SIMD unit; clang's own remark says how many of them there can be.
SIMD_WAVES = {"gfx900": 10, "gfx1030": 16}


def round_up(number: int, step: int) -> int:
    """Return the least multiple of `step` that is not less than `number`."""
    return -(-number // step) * step


def occupancy(chip: Multiprocessor, registers: int, local: int, group: int) -> float:
    """Say which part of a multiprocessor's warps can be there at once.

    Args:
        chip: what it has.
        registers: of a work-item.
        local: bytes of local memory of a group.
        group: work-items of a group.

    Returns:
        From 0, where not one group fits, to 1.
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
    """Say which part of a target's waves a launch can keep there at once.

    Args:
        target: the target's name.
        registers: of a work-item.
        waves: what the compiler says, where it does.
        local: bytes of local memory of a group.
        group: work-items of a group.

    Returns:
        From 0, where not one group fits, to 1.
    """
    if waves is not None:
        return waves / SIMD_WAVES[target]
    return occupancy(MULTIPROCESSORS[target], registers, local, group)
