"""The programs that CI compiles: one of each family and class, and one for each launched kernel."""

from collections.abc import Sequence

from gpu_compile.programs import Program

# Constants that change the kernel substantially: GEMMs of dense matrices, with more results per item, and of each
# kind of matrix instructions; aligned vectors; dropout of attention; rows that share the reads of keys or weights.
ALIGNED = ("ALIGNED=1", "SPEC_ALIGNED=1")
KINDS = [f"TILE_KIND={kind}" for kind in range(1, 8)]
FORMS = frozenset({"DENSE=1", "DROPS=1", "ITEM=8", *ALIGNED, "ROWS=4", "BLOCK_ROWS=128", *KINDS})


def of(programs: Sequence[Program]) -> list[Program]:
    """Choose programs.

    Args:
        programs: the recorded programs.

    Returns:
        The first generic float program of each family, and then others until every launched kernel is covered in each
        of its forms.
    """
    chosen: dict[str, Program] = {}
    covered: set[tuple[str, str, frozenset[str]]] = set()
    for program in sorted(programs, key=lambda program: (program.is_specialised, "CLASS_F" not in program.options)):
        form = FORMS.intersection(program.options.split())
        kernels = {(program.family, kernel, form) for kernel in program.launches}
        if not kernels <= covered:
            covered |= kernels
            chosen[program.digest] = program
    return list(chosen.values())
