"""Operators that kernels of eager mode compute faster than what Inductor would make of them."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch._C import DispatchKey
from torch.utils._pytree import tree_leaves

# Interpolations have one decomposition before autograd, from which gradients would be additions at loaded positions.
INTERPOLATIONS = (
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
)
# Of channels-last tensors the host makes channels-last results, and kernels contiguous ones: paddings of such tensors
# are decomposed. The gradients of replication are not here, as PyTorch has no decomposition of them.
PADDINGS = (
    *(f"reflection_pad{dims}d{backward}" for dims in (1, 2, 3) for backward in ("", "_backward")),
    *(f"replication_pad{dims}d" for dims in (1, 2, 3)),
)
# Operators that CPU devices compute by a kernel of eager mode. Gradients of embeddings and of maxima would be atomic
# additions, element by element; windows of pooling, rolled rows, and elements at computed positions would be loaded
# lane by lane. Gradients of layer and RMS norms would be loops along rows and loops along columns, which read what one
# pass does.
EAGER_ON_CPUS = (
    *INTERPOLATIONS,
    *PADDINGS,
    *(f"{name}_backward" for name in INTERPOLATIONS),
    "_adaptive_avg_pool2d",
    "avg_pool2d",
    "avg_pool3d",
    "col2im",
    "embedding_dense_backward",
    "grid_sampler_2d",
    "index_add",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices",
    "native_layer_norm_backward",
    "_fused_rms_norm_backward",
    "roll",
)
# Those whose fake's result is contiguous whatever its input is.
CONTIGUOUS = ("roll",)
# The device of the tensor that an operator being lowered adds to, where it is asked for.
_added_to: ContextVar[torch.device | None] = ContextVar("_added_to", default=None)
_lock = threading.Lock()
_tracing = 0


def keep(module: Any) -> None:
    """Leave the operators whole in graphs that Inductor decomposes.

    Args:
        module: torch._inductor.decomposition.
    """
    for name in EAGER_ON_CPUS:
        op = getattr(torch.ops.aten, name).default
        if op in module.decompositions:
            is_whole = _are_contiguous if name in PADDINGS else _always
            module.decompositions[op] = _where_on_cpus(is_whole, _left_whole, module.decompositions[op])


@contextmanager
def whole_interpolations() -> Iterator[None]:
    """Leave interpolations whole in what is traced meanwhile.

    PyTorch decomposes them before autograd, by functions in the operators' own tables. Ours are there only while a
    graph is compiled for opencl: `torch.export`, for one, looks into these tables.
    """
    global _tracing
    tables = [(op, kernel) for name in INTERPOLATIONS for op, kernel in _kernels(name)]
    with _lock:
        _tracing += 1
        if _tracing == 1:
            for op, kernel in tables:
                op.py_kernels[DispatchKey.AutogradPrivateUse1] = kernel
                op._dispatch_cache.clear()
    try:
        yield
    finally:
        with _lock:
            _tracing -= 1
            if _tracing == 0:
                for op, _ in tables:
                    del op.py_kernels[DispatchKey.AutogradPrivateUse1]
                    op._dispatch_cache.clear()


@functools.cache
def _kernels(name: str) -> list[tuple[Any, Callable[..., Any]]]:
    """The overloads of an interpolation that PyTorch decomposes before autograd, with what leaves them whole."""
    packet = getattr(torch.ops.aten, name)
    kernels = []
    for op, whole in ((packet.default, _recorded(packet.default)), (packet.vec, _with_size(packet.default))):
        decompose = op.py_kernels.get(DispatchKey.Autograd)
        if decompose is not None:
            kernels.append((op, _where_on_cpus(_has_known_sizes, whole, decompose)))
    return kernels


def lower(module: Any) -> None:
    """Let eager mode compute the operators, and additions at loaded positions.

    Args:
        module: torch._inductor.lowering.
    """
    for name in EAGER_ON_CPUS:
        op = getattr(torch.ops.aten, name).default
        constrain = module.require_contiguous if name in CONTIGUOUS else None
        module.lowerings[op] = eager_where(module, op, is_cpu, constrain)
    for name in ("index_put_impl_", "scatter_fallback"):
        setattr(module, name, _telling_device(getattr(module, name)))
    # It may have been imported before the name was changed where it comes from.
    module.needs_fallback_due_to_atomic_add_limitations = (
        torch._inductor.utils.needs_fallback_due_to_atomic_add_limitations
    )


def limit_atomic_additions(module: Any) -> None:
    """Let additions at loaded positions be atomic operations only on devices that have them, and where they pay.

    Args:
        module: torch._inductor.utils, which does not say for which device it asks.
    """
    lacks_atomics = module.needs_fallback_due_to_atomic_add_limitations

    @functools.wraps(lacks_atomics)
    def lacks_atomic_add(dtype: torch.dtype) -> bool:
        # Decompositions ask too, for no device: what they make of an operator is asked again when it is lowered.
        device = _added_to.get()
        if lacks_atomics(dtype):
            return True
        if device is None or device.type != "opencl":
            return False
        # In 16 bits each addition would be rounded: 5000 ones would add up to 256 in bfloat16. Eager mode rounds once.
        if dtype in (torch.float16, torch.bfloat16):
            return True
        extensions = torch.opencl.get_device_properties(device).extensions
        return is_cpu(device) or (dtype == torch.float64 and "cl_khr_int64_base_atomics" not in extensions)

    module.needs_fallback_due_to_atomic_add_limitations = lacks_atomic_add


def is_cpu(device: torch.device) -> bool:
    """Tell whether a device, of opencl, is a CPU."""
    return torch.opencl.get_device_properties(device).device_class == "cpu"


def eager_where(
    module: Any, op: Any, applies: Callable[[torch.device], bool], constrain: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Let an operator of eager mode serve opencl, and other devices where it has no lowering.

    Args:
        module: torch._inductor.lowering.
        op: the operator.
        applies: tells for which devices, of opencl, it does.
        constrain: a layout constraint of Inductor for its arguments; by default they lie as the graph's do, as its
            result lies as its fake promised for those.

    Returns:
        Its lowering.
    """
    lower, eager = module.lowerings.get(op), module.fallback_handler(op, add_to_fallback_set=False)

    @functools.wraps(lower or eager)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, module.TensorBox)]
        devices = [tensor.get_device() for tensor in tensors]
        if lower is not None and not any(device.type == "opencl" and applies(device) for device in devices):
            return lower(*args, **kwargs)
        node = module.V.graph.current_node
        if node.target is op:
            args, kwargs = (constrain or module.constrain_to_fx_strides)(node, *args, **kwargs)
        return eager(*args, **kwargs)

    return lowered


def _left_whole(*args: Any, **kwargs: Any) -> Any:
    """A decomposition that leaves its operator whole."""
    return NotImplemented


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def _are_contiguous(*args: Any, **kwargs: Any) -> bool:
    tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)]
    return all(torch._prims_common.suggest_memory_format(x) == torch.contiguous_format for x in tensors)


def _has_known_sizes(x: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    """Tell whether a tensor's sizes do not depend on data: the operators' fakes compare them."""
    return _are_known(x.size())


def _are_known(sizes: Any) -> bool:
    # Imported here, as this module is with fake tensors, which need no sympy.
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols  # noqa: PLC0415

    return not free_unbacked_symbols(sizes)


def _where_on_cpus(
    is_whole: Callable[..., bool], whole: Callable[..., Any], decompose: Callable[..., Any]
) -> Callable[..., Any]:
    """A decomposition that on CPU devices is `whole` for arguments for which `is_whole`."""

    @functools.wraps(decompose)
    def chosen(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        is_ours = x.device.type == "opencl" and is_cpu(x.device) and is_whole(x, *args, **kwargs)
        return (whole if is_ours else decompose)(x, *args, **kwargs)

    return chosen


def _recorded(op: Any) -> Callable[..., Any]:
    """An operator as autograd records it."""
    return functools.partial(op._op_dk, DispatchKey.Autograd)


def _with_size(op: Any) -> Callable[..., torch.Tensor]:
    """The overload of an interpolation that is given scales as a list, by the one that is given the output's size."""

    def interpolated(x: torch.Tensor, output_size: Any, *args: Any) -> torch.Tensor:
        *corners, scales = args
        sizes = torch._decomp.decompositions.upsample_compute_output_size(x.size(), output_size, scales)
        return op(x, sizes, *corners, *(map(float, scales) if scales else (None,) * len(sizes)))

    return interpolated


def _telling_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Note the device of the first tensor while a function runs, if it adds to that, and if all sizes are known."""

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        nodes = [arg for arg in tree_leaves(args) if hasattr(arg, "get_size")]
        adds = kwargs.get("reduce", "sum") is not None
        if not adds or not all(_are_known(node.get_size()) for node in nodes):
            return function(*args, **kwargs)
        with _adding_to(nodes[0].get_device()):
            return function(*args, **kwargs)

    return told


@contextmanager
def _adding_to(device: torch.device) -> Iterator[None]:
    token = _added_to.set(device)
    try:
        yield
    finally:
        _added_to.reset(token)
