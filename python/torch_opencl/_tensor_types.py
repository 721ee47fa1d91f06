"""Legacy tensor and storage types: ``torch.opencl.FloatTensor``, ``torch.opencl.FloatStorage`` and others."""

import torch
from torch.storage import _LegacyStorage

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
        """Make the tensor that the type of the same name in ``torch`` makes, on the current device."""
        return getattr(torch, cls.__name__)(*arguments).to("opencl")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.device.type == "opencl" and instance.dtype == cls.dtype


def tensor_types() -> dict[str, type]:
    """Return the types by name.

    Returns:
        One for every dtype that has such a name. PyTorch itself implements ``tensor.type("torch.opencl.FloatTensor")``.
    """
    return {
        name: _TensorType(name, (), {"__module__": "torch.opencl", "dtype": dtype}) for name, dtype in _DTYPES.items()
    }


_COMPLEX = {"ComplexDoubleTensor": torch.complex128, "ComplexFloatTensor": torch.complex64}


def storage_types() -> dict[str, type]:
    """Return the types of typed storages by name; PyTorch warns at their first use.

    Returns:
        One for every dtype that has such a name.
    """
    # PyTorch takes the device from the type's module, and loads from old checkpoints only types in this set.
    types: dict[str, type] = {}
    for tensor_name, dtype in (_DTYPES | _COMPLEX).items():
        name = tensor_name.removesuffix("Tensor") + "Storage"
        types[name] = type(name, (_LegacyStorage,), {"__module__": "torch.opencl", "dtype": dtype, "_dtype": dtype})
        torch._storage_classes.add(types[name])
    return types
