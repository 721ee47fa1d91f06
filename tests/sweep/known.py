"""Pairs that are not right, or fall back, each with its reason."""

from fnmatch import fnmatch

COMPLEX = "No kernel for complex numbers yet."

# Reasons by a pattern of "kind name dtype check". `fallback` replaces the check for calls that fall back.
KNOWN: dict[str, str] = {
    "op linalg.cholesky_ex * vmap": "The samples in a batch are not all positive definite: what follows the failing "
    "column is not specified, and differs between CPU, CUDA and the kernels for GPUs.",
    "op nn.functional.rms_norm * jvp": "ATen's formula gives the dtype of rstd: float32 on all devices except the CPU.",
    "op nn.functional.rms_norm float16 vmap_backward": "ATen's differentiable formula of the gradient, which "
    "torch.func uses, computes in the input's dtype on all devices except the CPU, and overflows there.",
    "op nn.functional.scaled_dot_product_attention * gradgrad": "Fused operators have no second "
    "derivative on any device; torch.nn.attention.sdpa_kernel(SDPBackend.MATH) has.",
    "op nn.functional.linear_cross_entropy.chunked* *float16 forward": "PyTorch sums in float32 by default on the CPU "
    "and CUDA only, elsewhere in the input's dtype, in which a loss near 0 is 0.",
    "op ldexp * fallback": "No kernel for bools and complex numbers yet.",
    "op logaddexp complex* fallback": COMPLEX,
    "op renorm complex* fallback": COMPLEX,
    "op uniform complex* fallback": COMPLEX,
    "op complex float16 fallback": "No kernel for complex32 yet.",
}


def reason(pair: str, check: str) -> str | None:
    """Return why a finding is expected.

    Args:
        pair: the pair's name.
        check: the check, or `fallback`.

    Returns:
        The reason, or None.
    """
    return next((why for pattern, why in KNOWN.items() if fnmatch(f"{pair} {check}", pattern)), None)
