"""The programs for GPUs with matrix instructions: each kind's, and the GPUs that have it.

They are listed with an emulated kind, as a check of results would refuse them on stub devices, and compiled for the
device's own instructions.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu_compile.programs import Launch, Program

FAMILIES = ("gemm_tile", "attention_tile", "attention_tile_backward")
# The lanes of each kind of `tile_kind.rs`, and the targets that have it.
KINDS = {
    "mma": (32, ("sm_80", "sm_90")),
    "wmma": (32, ("gfx1100",)),
    "wmma12": (32, ("gfx1201",)),
    "mfma": (64, ("gfx90a", "gfx942")),
    "dpas16": (16, ("dpas",)),
    "dpas8": (8, ("dpas",)),
    "dot": (32, ("gfx906", "gfx1030")),
}
# More than GPUs have: an emulation also exchanges tiles through local memory.
LOCAL_BYTES = 96 << 10
# AMD's instructions are clang's builtins.
BUILTINS = ("wmma", "wmma12", "mfma", "dot")
# Other GPUs compute the small blocks of kind "dot" in int8 by an extension of OpenCL C 3.0.
EXTENSION_TARGETS = ("acm-g10", "tgllp")
# AMD's GPUs with matrix instructions compute int8 by kind "dot".
INT8_TARGETS = ("gfx906", "gfx1030", "gfx1100", "gfx1201", "gfx90a", "gfx942")
INT8_DOT = frozenset({"TILE_KIND=7", "SPEC_DTYPE0=1"})
LIST = "import sys; from torch_opencl._load import native; open(sys.argv[1], 'w').write(native().kernel_catalogue(0))"


def programs(run: Callable[[list[str], Path, dict[str, str]], None]) -> list[Program]:
    """List the programs.

    Args:
        run: `record.record_calls`.

    Returns:
        The programs, with their targets.
    """
    found = []
    for kind, (lanes, targets) in KINDS.items():
        with TemporaryDirectory() as name:
            variables = {"TORCH_OPENCL_MATRIX": f"emulated:{kind}", "STUB_LOCAL_BYTES": str(LOCAL_BYTES)}
            path = Path(name) / "catalogue.json"
            run(["-c", LIST, str(path)], Path(name), variables)
            listed = json.loads(path.read_text())
        for entry in listed:
            family = entry["name"].split()[0]
            if family in FAMILIES:
                options = entry["build_options"].replace("TILE_EMULATED=1", "TILE_EMULATED=0")
                groups = re.findall(r"GROUPS(?:_DOWN|_ACROSS)?=(\d+)", options)
                launches = {family: Launch(lanes * math.prod(map(int, groups)), 0)}
                is_int8_dot = INT8_DOT.issubset(options.split())
                if is_int8_dot and "BLOCK_ROWS=64" in options:
                    standard = options.replace("CL1.2", "CL3.0") + " -D OPENCL_3=1"
                    found.append(Program(family, "", standard, launches, EXTENSION_TARGETS))
                if kind in BUILTINS:
                    options += " -D HAS_CLANG_BUILTINS=1"
                found.append(Program(family, "", options, launches, INT8_TARGETS if is_int8_dot else targets))
    return found
