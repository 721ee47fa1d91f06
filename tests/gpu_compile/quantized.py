"""Matrix-vector products with quantised weights: instructions of the inner loop for each packed byte.

A GPU is bound by memory if it executes these in less time than it reads the bytes.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_compile.limits import Use

FAMILY = "quantized"
# Columns that a work-item multiplies in a pass, for each row of the weight.
CHUNK = 32
# Names, and packed bytes of 256 columns without separate scales, by the number in formats.cl.
FORMATS = {
    2: ("q4_0", 144),
    3: ("q4_1", 160),
    6: ("q5_0", 176),
    7: ("q5_1", 192),
    8: ("q8_0", 272),
    10: ("q2_k", 84),
    11: ("q3_k", 110),
    12: ("q4_k", 144),
    13: ("q5_k", 176),
    14: ("q6_k", 210),
    20: ("iq4_nl", 144),
    100: ("table4", 128),
    101: ("affine4", 128),
    102: ("affine8", 256),
}


def instructions_a_weight(use: "Use") -> float | None:
    """Return the instructions of the inner loop for each weight.

    Args:
        use: a launched kernel.

    Returns:
        Their number. None for other kernels, several rows of input, programs that are not specialised or whose input is
        not aligned, and Intel's GPUs.
    """
    constants = dict(word.split("=") for word in use.program.split() if "=" in word)
    is_specialised = {"SPEC_DTYPE0", "SPEC_ALIGNED"} <= constants.keys()
    if use.kernel != "quantized_few_rows" or constants["ROWS"] != "1" or not is_specialised:
        return None
    if not use.target.startswith(("sm_", "gfx")):
        return None
    return use.figures.loop / (int(constants["TILE"]) * CHUNK)


def lines(uses: Sequence["Use"]) -> list[str]:
    """Format a table of instructions a packed byte, by format and target.

    Args:
        uses: launched kernels.

    Returns:
        Its lines.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for use in uses:
        count = instructions_a_weight(use)
        if count is not None and (match := re.search(r"FORMAT=(\d+)", use.program)) and int(match[1]) in FORMATS:
            name, size = FORMATS[int(match[1])]
            found[name].append(f"{use.target} {count * 256 / size:.1f}")
    return [f"instructions a packed byte of {name}: {', '.join(sorted(set(counts)))}" for name, counts in found.items()]
