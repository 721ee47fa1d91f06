"""How tensors are printed: PyTorch formats floating-point values in float64, which not every device has."""

import torch
from torch import _tensor_str


def install() -> None:
    """Let the formatter work on a host copy of OpenCL tensors."""
    _tensor_str.tensor_totype = _on_host(_tensor_str.tensor_totype)


def _on_host(totype):
    def tensor_totype(tensor: torch.Tensor) -> torch.Tensor:
        return totype(tensor.cpu() if tensor.device.type == "opencl" else tensor)

    return tensor_totype
