"""DLPack: tensors of this device for other libraries, and memory of other libraries as tensors.

DLPack names OpenCL memory by its ``cl_mem``. PyTorch's own converter knows no such tensors, and asks for a device of
the name "privateuse1", which a renamed one never has; so capsules are written and read here. ``Tensor.__dlpack__``,
``Tensor.__dlpack_device__`` and ``torch.from_dlpack`` are replaced by functions that do so for OpenCL, and leave all
else to PyTorch's.
"""

import ctypes
import functools
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_void_p,
)
from typing import Any

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from torch_opencl._lazy import _lazy_init, device_count
from torch_opencl._load import native

_NAME, _USED = b"dltensor", b"used_dltensor"
_VERSIONED_NAME, _VERSIONED_USED = b"dltensor_versioned", b"used_dltensor_versioned"
_IS_COPIED = 2

# Codes of DLPack and bits of an element.
DTYPES = {
    torch.int8: (0, 8),
    torch.int16: (0, 16),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.uint8: (1, 8),
    torch.uint16: (1, 16),
    torch.uint32: (1, 32),
    torch.uint64: (1, 64),
    torch.float16: (2, 16),
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.bfloat16: (4, 16),
    torch.complex32: (5, 32),
    torch.complex64: (5, 64),
    torch.complex128: (5, 128),
    torch.bool: (6, 8),
}


class _Device(Structure):
    _fields_ = (("type", c_int32), ("index", c_int32))


class _DataType(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = CFUNCTYPE(None, c_void_p)


class _Managed(Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", _Deleter))


class _ManagedVersioned(Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# Functions of its own: others may declare those of ctypes.pythonapi otherwise. Capsules pass as addresses where they
# are about to end.
_python = ctypes.PyDLL(None)
_CapsuleEnd = ctypes.PYFUNCTYPE(None, c_void_p)
_new = _python.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (c_void_p, c_char_p, _CapsuleEnd)
_is_valid = _python.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = c_int, (c_void_p, c_char_p)
_pointer = _python.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, (c_void_p, c_char_p)
_rename = _python.PyCapsule_SetName
_rename.restype, _rename.argtypes = c_int, (c_void_p, c_char_p)

# What consumers still hold: the struct, and what it must keep alive.
_exported: dict[int, tuple[Any, ...]] = {}


@_Deleter
def _delete(address: int, exported: dict[int, tuple[Any, ...]] = _exported) -> None:
    held = exported.pop(address, None)
    if held is not None and held[-1] is not None:
        held[-1]()


@_CapsuleEnd
def _end(capsule: int, names: tuple[bytes, ...] = (_NAME, _VERSIONED_NAME)) -> None:
    # One that was consumed has another name.
    for name in names:
        if _is_valid(capsule, name):
            _delete(_pointer(capsule, name))


# Consumers may call them until the process ends.
for _callback in (_delete, _end):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


def _capsule(filled: _Tensor, held: tuple[Any, ...], release: Any, is_versioned: bool, flags: int = 0) -> Any:
    managed: Structure
    if is_versioned:
        managed = _ManagedVersioned(major=1, minor=0, deleter=_delete, flags=flags, tensor=filled)
    else:
        managed = _Managed(tensor=filled, deleter=_delete)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, filled, *held, release)
    return _new(address, _VERSIONED_NAME if is_versioned else _NAME, _end)


def _sizes(values: tuple[int, ...]) -> Any:
    return (c_int64 * max(1, len(values)))(*values)


def to_capsule(
    tensor: torch.Tensor,
    *,
    stream: int | None = -1,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a tensor of this device as a DLPack capsule; what ``Tensor.__dlpack__`` does.

    Args:
        tensor: the tensor.
        stream: -1 where the consumer uses the tensor's stream; otherwise the device is waited for.
        max_version: of DLPack, that the consumer knows.
        dl_device: where the consumer wants it: on its device, or on the CPU, which copies.
        copy: whether to copy; None where it must be.

    Returns:
        The capsule: ``cl_mem`` and offset, shape and strides.

    Raises:
        BufferError: DLPack has no such tensors, or ``copy`` is False and the CPU is asked for.
    """
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_conj() or tensor.is_neg():
        raise BufferError("Can't export tensors with the conjugate or the negative bit set")
    if tensor.layout != torch.strided:
        raise BufferError("Can't export tensors with layout other than torch.strided")
    own = (int(DLDeviceType.kDLOpenCL), tensor.device.index)
    wanted = own if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if wanted == (int(DLDeviceType.kDLCPU), 0):
        if copy is False:
            raise BufferError("the memory of an OpenCL device is no memory of the CPU: it has to be copied")
        return tensor.cpu().__dlpack__(max_version=max_version)
    if wanted != own:
        raise BufferError(f"a tensor of {tensor.device} cannot be exported to DLPack's device {wanted}")
    if tensor.dtype not in DTYPES:
        raise BufferError(f"{tensor.dtype} is not exported to DLPack")
    if copy:
        tensor = tensor.clone()
    memory, offset = native().native_buffer(tensor) if tensor.numel() > 0 else (0, 0)
    if stream != -1:
        torch.accelerator.current_stream(tensor.device).synchronize()
    code, bits = DTYPES[tensor.dtype]
    shape, strides = _sizes(tuple(tensor.shape)), _sizes(tensor.stride())
    filled = _Tensor(memory, _Device(*own), tensor.dim(), _DataType(code, bits, 1), shape, strides, offset)
    is_versioned = max_version is not None and max_version[0] >= 1
    return _capsule(filled, (shape, strides, tensor), None, is_versioned, _IS_COPIED if copy else 0)


def tensor_of(
    memory: int, offset: int, shape: Any, strides: Any, *, dtype: tuple[int, int], release: Any
) -> torch.Tensor:
    """Return a tensor over a buffer of other code, without copying.

    Args:
        memory: the ``cl_mem``, of the context of one of our devices.
        offset: bytes from its start.
        shape: elements in each dimension.
        strides: elements between neighbours in each dimension.
        dtype: DLPack's code, and the bits of an element.
        release: called when the tensor's memory is no more used.

    Returns:
        The tensor.

    Raises:
        RuntimeError: no device of ours has the buffer.
        ValueError: it is too short.
    """
    _lazy_init()
    index, (address, size) = _adopt(memory)

    def let_go() -> None:
        native().abandon_buffer(index, address)
        release()

    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) if 0 not in shape else -1
    if offset + (last + 1) * dtype[1] // 8 > size or any(stride < 0 for stride in strides):
        native().abandon_buffer(index, address)
        raise ValueError(
            f"a tensor of shape {tuple(shape)}, {offset} bytes into a buffer of {size}, does not lie in it"
        )
    sizes, steps = _sizes(tuple(shape)), _sizes(tuple(strides))
    device = _Device(int(DLDeviceType.kDLExtDev), index)
    filled = _Tensor(address + offset, device, len(shape), _DataType(*dtype, 1), sizes, steps, 0)
    # What PyTorch calls its out-of-tree device; its data is an address of ours.
    return torch._C._from_dlpack(_capsule(filled, (sizes, steps), let_go, False))


def _adopt(memory: int) -> tuple[int, list[int]]:
    failure: Exception | None = None
    for index in range(device_count()):
        try:
            return index, native().adopt_buffer(index, memory)
        except RuntimeError as error:
            failure = error
    raise failure or RuntimeError("there is no OpenCL device")


def from_capsule(capsule: Any) -> torch.Tensor:
    """Return what a capsule of OpenCL memory holds as a tensor, without copying; it can be done once.

    Args:
        capsule: a DLPack capsule with the device kDLOpenCL.

    Returns:
        The tensor.

    Raises:
        RuntimeError: the memory is not of the context of one of our devices.
        BufferError: its elements are of no dtype of PyTorch.
    """
    is_versioned = bool(_is_valid(id(capsule), _VERSIONED_NAME))
    name, used = (_VERSIONED_NAME, _VERSIONED_USED) if is_versioned else (_NAME, _USED)
    address = _pointer(id(capsule), name)
    managed = (_ManagedVersioned if is_versioned else _Managed).from_address(address)
    tensor, deleter = managed.tensor, managed.deleter
    shape = tensor.shape[: tensor.ndim] if tensor.ndim else []
    strides = _contiguous(shape) if not tensor.strides else tensor.strides[: tensor.ndim]
    dtype = tensor.dtype.code, tensor.dtype.bits
    if tensor.dtype.lanes != 1 or dtype not in DTYPES.values():
        raise BufferError(f"elements with DLPack's code {dtype[0]}, {dtype[1]} bits, are of no dtype of PyTorch")

    def release() -> None:
        if deleter:
            deleter(address)

    if 0 in shape:
        _rename(id(capsule), used)
        release()
        torch_dtype = next(key for key, value in DTYPES.items() if value == dtype)
        return torch.empty_strided(
            shape, strides, dtype=torch_dtype, device=torch.device("opencl", tensor.device.index)
        )
    made = tensor_of(tensor.data, tensor.byte_offset, shape, strides, dtype=dtype, release=release)
    _rename(id(capsule), used)
    return made


def _contiguous(shape: list[int]) -> list[int]:
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return strides


def _is_ours(capsule: Any) -> bool:
    """Whether a capsule holds OpenCL memory."""
    for name, kind in ((_NAME, _Managed), (_VERSIONED_NAME, _ManagedVersioned)):
        if _is_valid(id(capsule), name):
            held = kind.from_address(_pointer(id(capsule), name))
            return held.tensor.device.type == int(DLDeviceType.kDLOpenCL)
    return False


def install() -> None:
    """Let ``Tensor.__dlpack__``, ``Tensor.__dlpack_device__`` and ``torch.from_dlpack`` serve OpenCL."""
    export, device_of = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__
    take = torch.utils.dlpack.from_dlpack

    @functools.wraps(export)
    def __dlpack__(self: torch.Tensor, **options: Any) -> Any:
        is_other = has_torch_function_unary(self) or self.device.type != "opencl"
        return export(self, **options) if is_other else to_capsule(self, **options)

    @functools.wraps(device_of)
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
        is_other = has_torch_function_unary(self) or self.device.type != "opencl"
        return device_of(self) if is_other else (DLDeviceType.kDLOpenCL, self.device.index)

    @functools.wraps(take)
    def from_dlpack(
        ext_tensor: Any, *, device: torch.device | str | None = None, copy: bool | None = None
    ) -> torch.Tensor:
        is_producer = hasattr(ext_tensor, "__dlpack__")
        if is_producer and int(ext_tensor.__dlpack_device__()[0]) != int(DLDeviceType.kDLOpenCL):
            return take(ext_tensor, device=device, copy=copy)
        if not is_producer and not _is_ours(ext_tensor):
            return take(ext_tensor, device=device, copy=copy)
        tensor = _from_producer(ext_tensor) if is_producer else from_capsule(ext_tensor)
        target = tensor.device if device is None else torch.device(device)
        if target.type == "opencl" and target.index is None:
            target = tensor.device
        if target != tensor.device and copy is False:
            raise ValueError(f"cannot move a DLPack tensor from {tensor.device} to {target} without copying")
        return tensor.clone() if copy and target == tensor.device else tensor.to(target)

    functions = {"__dlpack__": __dlpack__, "__dlpack_device__": __dlpack_device__}
    for name, function in functions.items():
        setattr(torch.Tensor, name, function)
    for module in (torch, torch.utils.dlpack):
        module.__dict__["from_dlpack"] = from_dlpack


def _from_producer(producer: Any) -> torch.Tensor:
    if isinstance(producer, torch.Tensor):
        # The same memory under the same address.
        if producer.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return producer.detach()
    try:
        return from_capsule(producer.__dlpack__(max_version=(1, 0)))
    except TypeError:
        return from_capsule(producer.__dlpack__())
