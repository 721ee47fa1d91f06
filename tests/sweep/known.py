"""Pairs that are not right, or fall back, each with its reason."""

from fnmatch import fnmatch

UINT8_IMAGES = "ATen's integer arithmetic for images, which rounds in another way than that of floats."
COMPLEX = "No kernel for complex numbers yet."

# By a pattern of "kind name dtype check": why. `fallback` stands instead of the check for calls that fall back.
KNOWN: dict[str, str] = {
    "op nn.functional.rms_norm * jvp": "ATen's formula gives the dtype of rstd: float32 on all devices but the CPU.",
    "op nn.functional.scaled_dot_product_attention * gradgrad": "No fused operator has a second "
    "derivative, on no device; torch.nn.attention.sdpa_kernel(SDPBackend.MATH) has.",
    "op _upsample_bilinear2d_aa uint8 fallback": UINT8_IMAGES,
    "op nn.functional.interpolate.bi* uint8 fallback": UINT8_IMAGES,
    "op nn.functional.upsample_bilinear uint8 fallback": UINT8_IMAGES,
    "op nn.functional.linear_cross_entropy.chunked* *float16 forward": "PyTorch sums in float32 by default on the CPU "
    "and CUDA alone, elsewhere in the input's dtype, in which a loss near 0 is 0.",
    "op ldexp * fallback": "No kernel for bools and complex numbers yet.",
    "op logaddexp complex* fallback": COMPLEX,
    "op renorm complex* fallback": COMPLEX,
    "op uniform complex* fallback": COMPLEX,
    "op complex float16 fallback": "No kernel for complex32 yet.",
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
