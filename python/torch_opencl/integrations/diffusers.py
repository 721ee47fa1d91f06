"""diffusers: layers with GGUF weights are multiplied as they are stored (:mod:`torch_opencl.quantized`)."""

from collections.abc import Callable
from typing import Any

import torch

from torch_opencl.integrations._changes import Changes
from torch_opencl.quantized import GGUF_FORMATS, QuantizedWeight

__all__ = ["disable", "enable"]

# Dtypes that kernels multiply.
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def enable() -> None:
    """Make diffusers' GGUF layers use this package's kernels; see :func:`torch_opencl.integrations.enable`."""
    _CHANGES.apply()


def disable() -> None:
    """Undo the changes of :func:`enable` in diffusers."""
    _CHANGES.undo()


def _forward(original: Callable[[Any, torch.Tensor], torch.Tensor]) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    def forward_native(self: Any, inputs: torch.Tensor) -> torch.Tensor:
        kind = getattr(getattr(self.weight, "quant_type", None), "name", "").lower()
        is_ours = inputs.device.type == "opencl" and inputs.dtype == self.compute_dtype
        if not is_ours or kind not in GGUF_FORMATS or inputs.dtype not in _FLOATS:
            return original(self, inputs)
        rows, columns = self.weight.quant_shape
        weight = QuantizedWeight(self.weight.as_tensor(), kind, (rows, columns))
        return weight.linear(inputs, None if self.bias is None else self.bias.to(inputs.dtype))

    return forward_native


_CHANGES = Changes("diffusers", {}, {"diffusers.quantizers.gguf.utils:GGUFLinear.forward_native": _forward})
