"""The old names of tensor types: ``torch.opencl.FloatTensor`` and its kin."""

import torch

_DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


class _TensorType(type):
    """Construction of typed tensors, and ``isinstance``."""

    dtype: torch.dtype

    def __call__(cls, *arguments: object) -> torch.Tensor:
        """Make what the type of the same name in ``torch`` makes of the arguments, on the current device."""
        return getattr(torch, cls.__name__)(*arguments).to("opencl")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.device.type == "opencl" and instance.dtype == cls.dtype


def tensor_types() -> dict[str, type]:
    """Return the types by name.

    Returns:
        One for every dtype that has such a name. ``tensor.type("torch.opencl.FloatTensor")`` is PyTorch's own.
    """
    return {
        name: _TensorType(name, (), {"__module__": "torch.opencl", "dtype": dtype}) for name, dtype in _DTYPES.items()
    }
