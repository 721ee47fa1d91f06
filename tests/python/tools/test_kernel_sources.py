"""Rules for the source of all kernels."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from torch._inductor.utils import run_and_get_code

KERNELS = Path(__file__).parents[3] / "rust"
FLOAT = r"(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?|0x[0-9a-fA-F.]+p[-+]?\d+"
# Not inside a word, such as the member .s0, and without the suffix f.
BARE = re.compile(rf"(?<![\w.])({FLOAT})(?![\w.])")


def bare_literals(text: str) -> list[str]:
    """Floating literals that are double for every dtype: neither 0.5f nor LIT(0.5), nor in code for double only."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    code = re.sub(r"#ifdef CLASS_D\n.*?#(else|endif)", "", code, flags=re.DOTALL)
    code = re.sub(r"LIT\([^()]*\)", "", code)
    return [match.group(1) for match in BARE.finditer(code)]


def test_floating_literals_have_the_precision_that_is_computed_in() -> None:
    """A double literal makes a float expression double if the device has it, and is an error next to vectors."""
    sources = sorted(KERNELS.rglob("*.cl"))
    assert len(sources) > 50
    assert {path.name: found for path in sources if (found := bare_literals(path.read_text()))} == {}


def guarded_builtins(text: str) -> tuple[int, int]:
    """Count the lines with clang builtins, and those inside `HAS_CLANG_BUILTINS`."""
    found, within, conditions = 0, 0, []
    for line in text.splitlines():
        code = line.split("//")[0].strip()
        if code.startswith("#if"):
            conditions.append(code)
        elif code.startswith("#endif"):
            conditions.pop()
        if re.search(r"__(has_)?builtin", code):
            found += 1
            within += any("HAS_CLANG_BUILTINS" in condition for condition in conditions)
    return found, within


def test_functions_of_clang_are_for_drivers_that_compile_them() -> None:
    """Drivers that translate to SPIR-V crash on builtins they cannot translate."""
    counts = [guarded_builtins(path.read_text()) for path in KERNELS.rglob("*.cl")]
    found, within = map(sum, zip(*counts, strict=True))
    assert found == within > 0
    assert guarded_builtins("#if defined(X)\n__builtin_prefetch(p);\n#endif") == (1, 0)


def test_bare_literals_are_found() -> None:
    assert bare_literals("x = 0.5 * y + 1e-7 - 2. * 0x1p-24; // 3.5") == ["0.5", "1e-7", "2.", "0x1p-24"]
    assert bare_literals("x = LIT(0.5) * y.s0 + 1.5f + 3 + 0xe5 + 1e3f") == []


def bare_inlines(text: str) -> list[str]:
    """Lines with an `inline` that is not `static inline`."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return [line.strip() for line in code.splitlines() if re.search(r"(?<!\bstatic )\binline\b", line)]


def test_inline_functions_are_static() -> None:
    """OpenCL C has C99's inline: if a compiler calls such a function instead of inlining it, it is undefined."""
    sources = sorted(KERNELS.rglob("*.cl"))
    assert {path.name: found for path in sources if (found := bare_inlines(path.read_text()))} == {}


def test_bare_inlines_are_found() -> None:
    text = "inline T f() {}\n  inline T NAME() \\\n#define I inline __attribute__((always_inline))\n"
    assert len(bare_inlines(text)) == 3
    assert bare_inlines("static inline T f(); // inline\n#define I static inline __attribute__((always_inline))") == []


@pytest.mark.slow
def test_structs_have_the_same_layout_in_kernels_and_on_the_host(device: torch.device) -> None:
    assert torch.ops.torch_opencl.struct_mismatches(device.index or 0) == ""


# Words that some compilers reserve: OpenCL C for later versions, Intel's and Xilinx's compilers for FPGAs, and GNU C.
RESERVED = {"channel", "pipe", "reserve_id_t", "quad", "imaginary", "asm", "typeof", "xcl_pipeline_loop"}


def reserved_words(text: str) -> set[str]:
    """Identifiers of OpenCL C that a compiler may refuse."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return RESERVED.intersection(re.findall(r"[A-Za-z_]\w*", code))


def test_no_identifier_is_a_reserved_word_of_another_compiler() -> None:
    """Intel's compiler for FPGAs has a type named channel."""
    assert reserved_words("long channel = 0; // quad") == {"channel"}
    sources = {path.name: path.read_text() for path in KERNELS.rglob("*.cl")}
    for row in yaml.safe_load((KERNELS.parent / "native_functions.yaml").read_text()):
        sources[str(row.get("op"))] = " ".join(str(text) for key, text in row.items() if key.startswith("expr"))
    # This file is for NVIDIA's compiler alone, and calls its assembler.
    wanted = {"tile_nvidia.cl": {"asm"}}
    assert {name: found for name, text in sources.items() if (found := reserved_words(text))} == wanted


def test_generated_kernels_have_no_reserved_word(device: torch.device) -> None:
    function = torch.compile(lambda x, y: ((x @ y).relu() + x.mean(-1, keepdim=True)).softmax(-1).cumsum(0))
    _, codes = run_and_get_code(function, torch.rand(64, 64, device=device), torch.rand(64, 64, device=device))
    text = "\n".join(codes)
    assert "__kernel" in text or "KERNEL" in text
    assert reserved_words(text) == set()
