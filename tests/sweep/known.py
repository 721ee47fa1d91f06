"""Pairs that are not right, or fall back, each with its reason."""

from fnmatch import fnmatch

UINT8_IMAGES = "ATen's integer arithmetic for images, which rounds in another way than that of floats."

# By a pattern of "kind name dtype check": why. `fallback` stands in the place of the check for what falls back.
KNOWN: dict[str, str] = {
    "op nn.functional.rms_norm * jvp": "ATen's formula gives the dtype of rstd: float32 on all devices but the CPU.",
    "op _upsample_bilinear2d_aa uint8 fallback": UINT8_IMAGES,
    "op nn.functional.interpolate.bi* uint8 fallback": UINT8_IMAGES,
    "op nn.functional.upsample_bilinear uint8 fallback": UINT8_IMAGES,
    "op ldexp * fallback": "Of bools and complex numbers: composed by ATen for the CPU alone, and hardly ever met.",
    "op logaddexp complex* fallback": "PyTorch's CUDA backend has it for the CPU's sake alone; no kernel yet.",
    "op renorm complex* fallback": "The stub's factor is real; no kernel for complex norms yet.",
    "op uniform complex* fallback": "No CUDA kernel either.",
    "op complex float16 fallback": "complex32 from two tensors has no kernel yet.",
}


def reason(pair: str, check: str) -> str | None:
    """Say why a finding is expected.

    Args:
        pair: its name.
        check: the check, or `fallback`.

    Returns:
        The reason; None if there is none.
    """
    return next((why for pattern, why in KNOWN.items() if fnmatch(f"{pair} {check}", pattern)), None)
