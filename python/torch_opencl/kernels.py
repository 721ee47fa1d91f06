"""User kernels in OpenCL C: :func:`compile_kernel`."""

import operator
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_opencl import _kernel_source
from torch_opencl._kernel_source import Kind, Parameter
from torch_opencl._lazy import _lazy_init
from torch_opencl._load import native
from torch_opencl._utils import DeviceLike, _get_device_index

__all__ = ["Kernel", "compile_kernel"]

Sizes = int | Sequence[int]


def compile_kernel(
    source: str,
    name: str,
    *,
    parameters: Mapping[str, Kind] | None = None,
    types: Mapping[str, Sequence[torch.dtype]] | None = None,
    constants: Mapping[str, int | float | bool] | None = None,
) -> "Kernel":
    """Make a callable from a kernel in OpenCL C, for tensors on OpenCL devices.

    The kernel is compiled at its first call, once for each device and for each dtype of its type parameters, and cached
    on disk like this package's kernels. docs/kernels.md lists what the source may use besides OpenCL C 1.2.

    Args:
        source: OpenCL C. Pointers to global memory take contiguous tensors; other parameters are scalars and sizes.
        name: of the ``__kernel`` function; the source may have others.
        parameters: the kind of each parameter, by name and in order: ``"tensor"``, ``"scalar"``, or ``"size"``, an
            integer of at least 0. If given, the kernel's parameters must agree.
        types: type parameters, such as ``T``, and the dtypes that each may have. A call takes them from its tensors. In
            the source ``T`` is the type of elements in memory and ``work_T`` the type to compute in.
        constants: macros to define before the source. Values that are not integers are doubles in a kernel that takes
            doubles, and floats in all others.

    Returns:
        The callable.

    Raises:
        ValueError: there is no such kernel, its parameters differ from ``parameters`` or have a type that no argument
            fits, a name is invalid in OpenCL C or already defined for sources, or a type parameter has no dtypes.
        TypeError: a constant is not a number.
    """
    return Kernel(source, name, parameters or {}, types or {}, constants or {})


class Kernel:
    """A user kernel; :func:`compile_kernel` makes it."""

    def __init__(
        self,
        source: str,
        name: str,
        parameters: Mapping[str, Kind],
        types: Mapping[str, Sequence[torch.dtype]],
        constants: Mapping[str, int | float | bool],
    ) -> None:
        for word in (name, *types, *constants):
            if not re.fullmatch(r"[A-Za-z_]\w*", word):
                raise ValueError(f"{word!r} is not a valid name in OpenCL C")
            _kernel_source.check_name(word)
        for word, value in constants.items():
            if not isinstance(value, int | float):
                raise TypeError(f"the constant {word} must be a number, not {type(value).__name__}")
        for word, dtypes in types.items():
            if not dtypes:
                raise ValueError(f"the type parameter {word} has no dtypes: list the dtypes that it may have")
            if unknown := [dtype for dtype in dtypes if dtype not in _kernel_source.STORAGE]:
                raise ValueError(f"the type parameter {word} cannot be {unknown[0]}")
        self._source, self._types, self._constants = source, {k: tuple(v) for k, v in types.items()}, dict(constants)
        self._signature = _kernel_source.read_signature(source, name, tuple(types))
        self._kinds = _checked(self._signature, parameters)
        self._group = _required_group(self._signature, self._constants)
        self._builds: dict[tuple[int, tuple[torch.dtype, ...]], _Build] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the function in OpenCL C."""
        return self._signature.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of a call, in order."""
        return self._signature.parameters

    def __repr__(self) -> str:
        listed = ", ".join(f"{parameter.name}: {self._kinds[parameter.name]}" for parameter in self.parameters)
        return f"<torch.opencl.Kernel {self.name}({listed})>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and other processes build the kernel again.
        return Kernel, (self._source, self.name, self._kinds, self._types, self._constants)

    def compile(self, device: DeviceLike = None, **types: torch.dtype) -> None:
        """Compile now rather than at the first call.

        Args:
            device: the device; the current one by default.
            types: a dtype for each type parameter.

        Raises:
            TypeError: a type parameter lacks its dtype.
            RuntimeError: the kernel does not compile; the message has the compiler's log, with the source's line
                numbers.
        """
        if set(types) != set(self._types):
            raise TypeError(f"kernel {self.name} has the type parameters {list(self._types)}, but got {list(types)}")
        for name, dtype in types.items():
            self._check_dtype(name, dtype)
        _lazy_init()
        self._built(_get_device_index(device, optional=True), types)

    def __call__(
        self,
        *args: torch.Tensor | float,
        elements: int | None = None,
        global_size: Sizes | None = None,
        local_size: Sizes | None = None,
    ) -> None:
        """Enqueue the kernel on the current stream of the tensors' device.

        Autograd does not track its writes: use it within ``torch.library.custom_op`` or ``torch.autograd.Function``.

        Args:
            args: an argument for each parameter.
            elements: the number of work-items, in groups that suit the device; 1 for a kernel that loops itself. By
                default the number of elements of the first tensor.
            global_size: work-items in one, two or three dimensions, instead.
            local_size: work-items of a group in each dimension, which divide ``global_size``.

        Raises:
            TypeError: there are more or fewer arguments than parameters, or one has another kind or dtype.
            ValueError: a tensor is not contiguous, tensors are on several devices, a number does not fit its type, or
                the sizes are invalid.
            NotImplementedError: the device does not support groups of this size.
            RuntimeError: the kernel does not compile; the message has the compiler's log, with the source's line
                numbers.
        """
        if len(args) != len(self.parameters):
            expected = ", ".join(parameter.name for parameter in self.parameters)
            raise TypeError(f"kernel {self.name} takes {len(self.parameters)} arguments ({expected}), not {len(args)}")
        tensors: dict[str, torch.Tensor] = {}
        numbers: list[float] = []
        for parameter, value in zip(self.parameters, args, strict=True):
            if parameter.kind == "tensor":
                tensors[parameter.name] = self._tensor(parameter, value)
            elif isinstance(value, torch.Tensor):
                raise TypeError(f"{self._of(parameter)} is a number; pass tensor.item()")
            else:
                numbers.append(value)
        if not tensors:
            raise TypeError(f"kernel {self.name} needs a tensor argument, whose device it runs on")
        device = self._device(tensors)
        build = self._built(device, self._dtypes(tensors))
        sizes = self._sizes(elements, global_size, local_size, next(iter(tensors.values())))
        values = [pack(value) for pack, value in zip(build.packers, numbers, strict=True)]
        written, read = ([tensors[name] for name in names] for names in (build.written, build.read))
        native().launch_user_kernel(build.kernel, written, read, values, *sizes)

    def _of(self, parameter: Parameter) -> str:
        return f"kernel {self.name}: {parameter.name}"

    def _tensor(self, parameter: Parameter, value: object) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{self._of(parameter)} is a tensor, not {type(value).__name__}")
        if value.device.type != "opencl":
            raise ValueError(f"{self._of(parameter)} is on {value.device}, and kernels take tensors of opencl devices")
        if value.layout != torch.strided or not value.is_contiguous():
            raise ValueError(f"{self._of(parameter)} is not contiguous; pass tensor.contiguous()")
        if value.is_conj() or value.is_neg():
            raise ValueError(f"{self._of(parameter)} is a lazy conjugate; pass tensor.resolve_conj().resolve_neg()")
        dtype = _kernel_source.DTYPES.get(parameter.type)
        if dtype is not None and value.dtype != dtype:
            raise TypeError(f"{self._of(parameter)} is a tensor of {dtype} ({parameter.type}), not of {value.dtype}")
        if parameter.is_written and value.requires_grad and value.is_leaf and torch.is_grad_enabled():
            raise ValueError(
                f"{self._of(parameter)} is written and requires gradients, which a kernel does not compute: call it in "
                "torch.library.custom_op, torch.autograd.Function or torch.no_grad()"
            )
        return value

    def _device(self, tensors: Mapping[str, torch.Tensor]) -> int:
        devices = {tensor.device for tensor in tensors.values()}
        if len(devices) > 1:
            found = ", ".join(f"{name} on {tensor.device}" for name, tensor in tensors.items())
            raise ValueError(f"kernel {self.name}: all tensors must be on one device, not {found}")
        return devices.pop().index

    def _dtypes(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.dtype]:
        dtypes: dict[str, torch.dtype] = {}
        for parameter in self.parameters:
            if parameter.type not in self._types or parameter.kind != "tensor":
                continue
            dtype = tensors[parameter.name].dtype
            if dtypes.setdefault(parameter.type, dtype) != dtype:
                raise TypeError(
                    f"{self._of(parameter)} is a tensor of {dtype}, and {parameter.type} is already "
                    f"{dtypes[parameter.type]} by another argument"
                )
            self._check_dtype(parameter.type, dtype)
        if missing := [name for name in self._types if name not in dtypes]:
            raise TypeError(f"kernel {self.name}: no tensor has elements of the type parameter {missing[0]}")
        return dtypes

    def _check_dtype(self, name: str, dtype: torch.dtype) -> None:
        if dtype not in self._types[name]:
            allowed = ", ".join(map(str, self._types[name]))
            raise TypeError(f"kernel {self.name}: {name} may be {allowed}, not {dtype}")

    def _sizes(
        self, elements: int | None, global_size: Sizes | None, local_size: Sizes | None, first: torch.Tensor
    ) -> tuple[list[int], list[int]]:
        if global_size is None:
            if local_size is not None:
                raise ValueError(f"kernel {self.name}: local_size needs global_size")
            count = first.numel() if elements is None else operator.index(elements)
            if not 0 <= count < 2**63:
                raise ValueError(f"kernel {self.name}: elements must be from 0 to 2**63 - 1, not {count}")
            self._check_group([])
            return [count], []
        if elements is not None:
            raise ValueError(f"kernel {self.name}: pass either elements or global_size")
        items, group = _size_list(global_size), [] if local_size is None else _size_list(local_size)
        fits = not group or (
            len(group) == len(items) and all(n > 0 == m % n for m, n in zip(items, group, strict=True))
        )
        if not 1 <= len(items) <= 3 or min(items) < 0 or max(items) >= 2**63 or not fits:
            raise ValueError(
                f"kernel {self.name}: global_size={tuple(items)}, local_size={tuple(group) or None}: global_size must "
                "be one to three sizes that fit 64 bits, and local_size as many sizes that divide them"
            )
        self._check_group(group)
        return items, group

    def _check_group(self, group: list[int]) -> None:
        """Check a group's size against the kernel's attribute: the errors of drivers do not name the needed size."""
        if self._group is None or (group and (*group, 1, 1)[:3] == self._group):
            return
        needed: tuple[int, ...] = self._group
        while len(needed) > 1 and needed[-1] == 1:
            needed = needed[:-1]
        raise ValueError(
            f"kernel {self.name} has reqd_work_group_size{self._group}: pass global_size and local_size={needed}, not "
            f"local_size={tuple(group) or None}"
        )

    def _built(self, device: int, dtypes: dict[str, torch.dtype]) -> "_Build":
        key = device, tuple(dtypes[name] for name in self._types)
        build = self._builds.get(key)
        if build is None:
            with self._lock:
                build = self._builds.get(key)
                if build is None:
                    build = self._builds[key] = self._build(device, dtypes)
        return build

    def _build(self, device: int, dtypes: dict[str, torch.dtype]) -> "_Build":
        text = _kernel_source.program_source(self._source, self._signature, dtypes, self._constants)
        build = _Build(native().build_user_kernel(device, text, self.name))
        buffers = self._signature.buffers()
        build.written = [parameter.name for parameter in buffers if parameter.is_written]
        build.read = [parameter.name for parameter in buffers if not parameter.is_written]
        build.packers = [self._packer(parameter, dtypes) for parameter in self._signature.scalars()]
        return build

    def _packer(self, parameter: Parameter, dtypes: Mapping[str, torch.dtype]) -> Callable[[float], int]:
        pack, is_integer = (
            _kernel_source.packer(parameter.type, dtypes),
            _kernel_source.is_integer(parameter.type, dtypes),
        )
        convert: Callable[[Any], float] = operator.index if is_integer else float
        is_size = self._kinds[parameter.name] == "size"

        def checked(value: float) -> int:
            try:
                if isinstance(value, str | bytes | bytearray):
                    raise TypeError
                number = convert(value)
                if is_size and number < 0:
                    raise ValueError(f"{number} is not a size")
                return pack(number)
            except TypeError:
                expected = "an integer" if is_integer else "a number"
                raise TypeError(f"{self._of(parameter)} is {expected}, not {type(value).__name__}") from None
            except ValueError as failure:
                raise ValueError(f"{self._of(parameter)}: {failure}") from None

        return checked


class _Build:
    """A kernel that has been built, and how its arguments are passed."""

    written: list[str]
    read: list[str]
    packers: list[Callable[[float], int]]

    def __init__(self, kernel: int) -> None:
        self.kernel = kernel
        weakref.finalize(self, native().release_kernels, [kernel]).atexit = False


def _required_group(
    signature: _kernel_source.Signature, constants: Mapping[str, int | float | bool]
) -> tuple[int, int, int] | None:
    """The work-group size of a kernel's attribute; None without one, or if a macro of the source defines it."""
    sizes = [constants.get(word, int(word) if word.isdecimal() else None) for word in signature.group]
    if len(sizes) != 3 or not all(isinstance(size, int) for size in sizes):
        return None
    x, y, z = map(int, sizes)  # type: ignore[arg-type]
    return x, y, z


def _size_list(sizes: Sizes) -> list[int]:
    return [operator.index(size) for size in sizes] if isinstance(sizes, Sequence) else [operator.index(sizes)]


def _checked(signature: _kernel_source.Signature, parameters: Mapping[str, Kind]) -> dict[str, Kind]:
    """Return the kind of each parameter, checked against the user's list."""
    own = {parameter.name: parameter for parameter in signature.parameters}
    if not parameters:
        return {name: parameter.kind for name, parameter in own.items()}
    if list(parameters) != list(own):
        raise ValueError(f"kernel {signature.name} has the parameters {list(own)}, not {list(parameters)}")
    for name, kind in parameters.items():
        type_, is_tensor = own[name].type, own[name].kind == "tensor"
        if kind not in ("tensor", "scalar", "size"):
            raise ValueError(f"kernel {signature.name}: {name} is given as {kind!r}; kinds are tensor, scalar and size")
        if is_tensor != (kind == "tensor") or (kind == "size" and not _kernel_source.is_integer(type_, {})):
            raise ValueError(
                f"kernel {signature.name}: {name} is given as a {kind}, but its type is {type_}{' *' * is_tensor}"
            )
    return dict(parameters)
