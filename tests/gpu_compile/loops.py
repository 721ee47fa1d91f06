"""The instructions of a kernel's inner loop, in the machine code of NVIDIA's or AMD's GPUs."""

import re
from collections.abc import Sequence

# The loop's blocks that copy the edges of matrices, which whole blocks do not run.
EDGES = re.compile(r"ZFILL|\bLDG\.\S*U16")
MATRIX = re.compile(r"\b[HI]MMA\b")
LABEL = re.compile(r"^\s*\.?(L_x_\d+|LBB\d+_\d+):")
BRANCH = re.compile(r"\b(?:BRA\S*|s_c?branch\w*)\s.*?\.?(L_x_\d+|LBB\d+_\d+)")
# Such as "/*0a40*/  @P0 FFMA R1, ...", but not one that never runs; or AMD's "v_fma_f32 v1, ...".
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?!@!PT)[@A-Z]|^\s+[a-z]")
MULTIPLY = re.compile(r"\b(?:FFMA|FMUL|v_(?:pk_|dual_)?(?:fma|fmac|mac|mad|mul)\w*_f32)")
LEAST_MULTIPLIES = 16


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


def multiplying_loop(code: str) -> int:
    """Return how many instructions the shortest loop has that multiplies at least 16 times.

    Args:
        code: a kernel in SASS (`nvdisasm -c`) or AMD's assembly.

    Returns:
        The instructions of one pass; 0 without such a loop.
    """
    loops = [
        body for body in _loops(code.splitlines()) if sum(map(bool, map(MULTIPLY.search, body))) >= LEAST_MULTIPLIES
    ]
    return min((sum(bool(INSTRUCTION.search(line)) for line in body) for body in loops), default=0)


def _hot_loop(lines: Sequence[str]) -> Sequence[str]:
    """Return the loop with the most matrix instructions."""
    return max(_loops(lines), key=lambda body: sum(bool(MATRIX.search(line)) for line in body), default=())


def _loops(lines: Sequence[str]) -> list[Sequence[str]]:
    """Return the lines from each label to each branch back to it."""
    labels = {match[1]: number for number, line in enumerate(lines) if (match := LABEL.match(line))}
    ends = ((number, match[1]) for number, line in enumerate(lines) if (match := BRANCH.search(line)))
    return [lines[labels[label] : end + 1] for end, label in ends if labels.get(label, end) < end]


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
