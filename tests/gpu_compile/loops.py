"""The loop of a kernel for NVIDIA's GPUs that has the matrix instructions, and their share of it."""

import re
from collections.abc import Sequence

# The loop's blocks that copy the edges of matrices, which whole blocks do not run.
EDGES = re.compile(r"ZFILL|\bLDG\.\S*U16")
MATRIX = re.compile(r"\b[HI]MMA\b")
LABEL = re.compile(r"^\s*\.?(L_x_\d+):")
BRANCH = re.compile(r"\bBRA\S*\b.*?\.?(L_x_\d+)")
# Such as "/*0a40*/  @P0 FFMA R1, ...", but not one that never runs.
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?!@!PT)[@A-Z]")


def matrix_share(code: str) -> float:
    """Return the share of matrix instructions in the loop that has most of them, without the code for edges.

    Args:
        code: a kernel in SASS (`nvdisasm -c`).

    Returns:
        From 0 to 1; 0 if no loop has one.
    """
    lines = _hot_loop(code.splitlines())
    usual = [line for block in _blocks(lines) if not any(map(EDGES.search, block)) for line in block]
    instructions = [line for line in usual if INSTRUCTION.search(line)]
    return sum(bool(MATRIX.search(line)) for line in instructions) / max(len(instructions), 1)


def _hot_loop(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines from a label to a branch back to it, for the loop with the most matrix instructions."""
    labels = {match[1]: number for number, line in enumerate(lines) if (match := LABEL.match(line))}
    best: Sequence[str] = ()
    for number, line in enumerate(lines):
        match = BRANCH.search(line)
        if match and labels.get(match[1], number) < number:
            body = lines[labels[match[1]] : number + 1]
            best = max(best, body, key=lambda part: sum(bool(MATRIX.search(line)) for line in part))
    return best


def _blocks(lines: Sequence[str]) -> list[list[str]]:
    """Split lines at labels and after branches."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if LABEL.match(line):
            blocks.append([])
        blocks[-1].append(line)
        if BRANCH.search(line):
            blocks.append([])
    return blocks
