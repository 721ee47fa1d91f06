"""The programs that CI compiles: one of each family and class, and one for each kernel that is launched."""

from collections.abc import Sequence

from gpu_compile.programs import Program

# Constants that make another kernel of one: GEMMs of plain matrices, and with more results an item.
FORMS = frozenset({"DENSE=1", "ITEM=8"})


def of(programs: Sequence[Program]) -> list[Program]:
    """Choose programs.

    Args:
        programs: what has been recorded.

    Returns:
        Of each family's generic programs the first of float, and then others until every launched kernel is in one, in
        each of its forms.
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
