"""DLPack: tensors of this device for other libraries, and memory of other libraries as tensors.

DLPack names OpenCL memory by its ``cl_mem``. PyTorch's converter does not support such tensors: it asks for a device
named "privateuse1", which a renamed device never is. Capsules are therefore written and read here.
``Tensor.__dlpack__``, ``Tensor.__dlpack_device__`` and ``torch.from_dlpack`` are replaced by functions that do so for
OpenCL and call PyTorch's for everything else.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, ClassVar

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from torch_opencl._lazy import _lazy_init, device_count
from torch_opencl._load import native

_NAME, _USED = b"dltensor", b"used_dltensor"
_VERSIONED_NAME, _VERSIONED_USED = b"dltensor_versioned", b"used_dltensor_versioned"

# Keys are DLPack's type code and the bits of an element.
_DTYPES = {
    (0, 8): torch.int8,
    (0, 16): torch.int16,
    (0, 32): torch.int32,
    (0, 64): torch.int64,
    (1, 8): torch.uint8,
    (1, 16): torch.uint16,
    (1, 32): torch.uint32,
    (1, 64): torch.uint64,
    (2, 16): torch.float16,
    (2, 32): torch.float32,
    (2, 64): torch.float64,
    (4, 16): torch.bfloat16,
    (5, 32): torch.complex32,
    (5, 64): torch.complex64,
    (5, 128): torch.complex128,
    (6, 8): torch.bool,
}


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_index", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
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
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


# A separate library object: other code may declare other signatures for the functions of ctypes.pythonapi.
_python = ctypes.PyDLL(None)
_is_valid = _python.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer = _python.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, (ctypes.py_object, ctypes.c_char_p)
_rename = _python.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def _managed(capsule: Any) -> Any:
    """The content of a capsule that has not been consumed."""
    for name, kind in ((_NAME, _Managed), (_VERSIONED_NAME, _ManagedVersioned)):
        if _is_valid(capsule, name):
            return kind.from_address(_pointer(capsule, name))
    raise RuntimeError("from_dlpack expects a DLPack capsule that has not been consumed: it can be used once")


def to_capsule(
    tensor: torch.Tensor,
    *,
    stream: int | None = -1,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a tensor of this device as a DLPack capsule, as ``Tensor.__dlpack__`` does.

    Args:
        tensor: the tensor.
        stream: -1 if the consumer uses the tensor's stream; otherwise the stream is synchronized.
        max_version: the greatest DLPack version that the consumer supports.
        dl_device: where the consumer wants it: on the tensor's device, or on the CPU, which copies.
        copy: whether to copy; None copies only if it must.

    Returns:
        The capsule: ``cl_mem`` and offset, shape and strides.

    Raises:
        BufferError: DLPack cannot describe the tensor, or ``copy`` is False and the CPU is requested.
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
            raise BufferError("the memory of an OpenCL device is not CPU memory: it must be copied")
        return tensor.cpu().__dlpack__(max_version=max_version)
    if wanted != own:
        raise BufferError(f"a tensor of {tensor.device} cannot be exported to DLPack's device {wanted}")
    if copy:
        tensor = tensor.clone()
    memory, offset = native().native_buffer(tensor) if tensor.numel() > 0 else (0, 0)
    if stream != -1:
        torch.accelerator.current_stream(tensor.device).synchronize()
    is_versioned = max_version is not None and max_version[0] >= 1
    # PyTorch's capsule owns the tensor; only device and memory are replaced.
    capsule = torch._C._to_dlpack_versioned(tensor) if is_versioned else torch._C._to_dlpack(tensor)
    filled = _managed(capsule).tensor
    filled.device_type, filled.device_index = own
    filled.data, filled.byte_offset = memory, offset
    return capsule


class _Held:
    """The owner of a storage's memory: an attribute of the storage."""

    # Kept alive in a forked child, because the driver's objects belong to the parent.
    forked: ClassVar[list[object]] = []

    def __init__(self, device: int, release: Callable[[], object]) -> None:
        self.finish, self.in_bad_fork = native().finish_device, native().in_bad_fork
        self.device, self.release = device, release

    def __del__(self) -> None:
        if self.in_bad_fork():
            self.forked.append(self.release)
            return
        # The memory may be reused after the release. The garbage collector may run at any time, in a capture too.
        try:
            self.finish(self.device)
        finally:
            self.release()


def tensor_of(
    memory: int,
    offset: int,
    *,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: torch.dtype,
    release: Callable[[], object],
) -> torch.Tensor:
    """Return a tensor over an external buffer, without copying.

    Args:
        memory: the ``cl_mem``, in the context of one of our devices.
        offset: bytes from its start.
        shape: elements in each dimension.
        strides: elements between neighbours in each dimension.
        dtype: of the elements.
        release: called when the tensor's memory is no longer used.

    Returns:
        The tensor.

    Raises:
        RuntimeError: none of our devices has the buffer.
        ValueError: the tensor does not lie in it.
    """
    _lazy_init()
    whole, size = _adopted(memory), dtype.itemsize
    last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) if 0 not in shape else -1
    if offset % size or offset + (last + 1) * size > whole.numel() or any(stride < 0 for stride in strides):
        raise ValueError(
            f"a tensor of shape {tuple(shape)} and {dtype}, {offset} bytes into a buffer of {whole.numel()} bytes, "
            "does not lie in it"
        )
    elements = whole[: whole.numel() // size * size].view(dtype)
    # PyTorch keeps the Python object of a storage as long as the storage.
    whole.untyped_storage()._held = _Held(whole.device.index, release)  # type: ignore[attr-defined]
    return elements.as_strided(shape, strides, offset // size)


def _adopted(memory: int) -> torch.Tensor:
    """The bytes of a buffer, on the device whose context it belongs to."""
    failure: Exception = RuntimeError("there is no OpenCL device")
    for index in range(device_count()):
        try:
            return native().adopt_buffer(index, memory)
        except RuntimeError as error:
            failure = error
    raise failure


def from_capsule(capsule: Any) -> torch.Tensor:
    """Return the content of an OpenCL capsule as a tensor, without copying; a capsule can be used once.

    Args:
        capsule: a DLPack capsule with the device kDLOpenCL.

    Returns:
        The tensor.

    Raises:
        RuntimeError: the memory is not in the context of one of our devices, or the capsule has been consumed.
        BufferError: PyTorch has no dtype for its elements.
    """
    managed = _managed(capsule)
    held, deleter, address = managed.tensor, managed.deleter, ctypes.addressof(managed)
    used = _VERSIONED_USED if isinstance(managed, _ManagedVersioned) else _USED
    shape = held.shape[: held.ndim] if held.ndim else []
    strides = held.strides[: held.ndim] if held.strides and held.ndim else _contiguous(shape)
    dtype = _DTYPES.get((held.code, held.bits)) if held.lanes == 1 else None
    if dtype is None:
        raise BufferError(f"PyTorch has no dtype for elements with DLPack's code {held.code} and {held.bits} bits")

    def release() -> None:
        if deleter:
            deleter(address)

    if 0 in shape:
        tensor = torch.empty(shape, dtype=dtype, device=torch.device("opencl", held.device_index))
        _rename(capsule, used)
        release()
        return tensor
    tensor = tensor_of(held.data, held.byte_offset, shape=shape, strides=strides, dtype=dtype, release=release)
    _rename(capsule, used)
    return tensor


def _contiguous(shape: list[int]) -> list[int]:
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return strides


def _is_ours(capsule: Any) -> bool:
    """Return whether a capsule holds OpenCL memory."""
    is_capsule = _is_valid(capsule, _NAME) or _is_valid(capsule, _VERSIONED_NAME)
    return bool(is_capsule) and _managed(capsule).tensor.device_type == int(DLDeviceType.kDLOpenCL)


def install() -> None:
    """Let ``Tensor.__dlpack__``, ``Tensor.__dlpack_device__`` and ``torch.from_dlpack`` support OpenCL."""
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
        # An alias with the same data pointer.
        if producer.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return producer.detach()
    try:
        return from_capsule(producer.__dlpack__(max_version=(1, 0)))
    except TypeError:
        return from_capsule(producer.__dlpack__())
