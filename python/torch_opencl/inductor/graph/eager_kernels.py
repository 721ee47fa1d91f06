"""Operators that eager kernels compute faster than Inductor's kernels would."""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch._C import DispatchKey
from torch.utils._pytree import tree_leaves

# PyTorch decomposes interpolations before autograd, so that gradients would be atomic additions at loaded positions.
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
# For channels-last tensors the host makes channels-last results and kernels contiguous ones, so paddings of such
# tensors are decomposed. The gradients of replication are not here, because PyTorch has no decomposition of them.
PADDINGS = (
    *(f"reflection_pad{dims}d{backward}" for dims in (1, 2, 3) for backward in ("", "_backward")),
    *(f"replication_pad{dims}d" for dims in (1, 2, 3)),
)
# Operators that CPU devices compute with eager kernels. Gradients of embeddings and of maxima would be atomic
# additions, element by element; windows of pooling, rolled rows, and elements at computed positions would be loaded
# lane by lane. Gradients of layer and RMS norms would be loops along rows and loops along columns, which read the data
# twice instead of once.
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
# Operators whose fake result is contiguous for any input.
CONTIGUOUS = ("roll",)
# Operators that add at loaded positions, and operators that do so if they are called with `reduce`.
ADDITIONS = (
    "index_put",
    "index_put_",
    "_unsafe_index_put",
    "_unsafe_index_put_",
    "_unsafe_masked_index_put_accumulate",
    "scatter_add",
    "scatter_add_",
    "scatter_reduce",
    "scatter_reduce_",
)
SCATTERS = ("scatter", "scatter_")
# The device of the tensor that the operator being lowered adds to, if known.
_added_to: ContextVar[torch.device | None] = ContextVar("_added_to", default=None)
_lock = threading.Lock()
_tracing = 0


def keep(module: Any) -> None:
    """Keep the operators undecomposed in graphs that Inductor decomposes.

    Args:
        module: torch._inductor.decomposition.
    """
    for name in EAGER_ON_CPUS:
        op = getattr(torch.ops.aten, name).default
        if op in module.decompositions:
            is_whole = _are_contiguous if name in PADDINGS else _always
            module.decompositions[op] = _where_on_cpus(is_whole, _keep_undecomposed, module.decompositions[op])


@contextmanager
def eager_interpolations() -> Iterator[None]:
    """Keep interpolations undecomposed in graphs that are traced in the context.

    PyTorch decomposes them before autograd, with functions in the operators' tables. Ours are in the tables only while
    a graph is compiled for opencl, because other code (such as `torch.export`) reads these tables.
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
    """The overloads of an interpolation that PyTorch decomposes before autograd, with our replacements."""
    packet = getattr(torch.ops.aten, name)
    kernels = []
    for op, whole in ((packet.default, _recorded(packet.default)), (packet.vec, _with_size(packet.default))):
        decompose = op.py_kernels.get(DispatchKey.Autograd)
        if decompose is not None:
            kernels.append((op, _where_on_cpus(_has_known_sizes, whole, decompose)))
    return kernels


def lower(module: Any) -> None:
    """Run the operators, and additions at loaded positions, as eager operators.

    Args:
        module: torch._inductor.lowering.
    """
    for name in EAGER_ON_CPUS:
        op = getattr(torch.ops.aten, name).default
        constrain = module.require_contiguous if name in CONTIGUOUS else None
        module.lowerings[op] = eager_where(module, op, is_cpu, constrain)
    for names, always in ((ADDITIONS, True), (SCATTERS, False)):
        for op in overloads(module, names):
            module.lowerings[op] = _recording_device(module.lowerings[op], always)
    # The lowering module may have imported the name before `limit_atomic_additions` replaced it.
    module.needs_fallback_due_to_atomic_add_limitations = (
        torch._inductor.utils.needs_fallback_due_to_atomic_add_limitations
    )


def limit_atomic_additions(module: Any) -> None:
    """Allow atomic additions at loaded positions only on devices that support them and gain by them.

    Args:
        module: torch._inductor.utils, whose check does not receive the device.
    """
    lacks_atomics = module.needs_fallback_due_to_atomic_add_limitations

    @functools.wraps(lacks_atomics)
    def lacks_atomic_add(dtype: torch.dtype) -> bool:
        # Decompositions call this without a device; their result is checked again when it is lowered.
        device = _added_to.get()
        if lacks_atomics(dtype):
            return True
        if device is None or device.type != "opencl":
            return False
        # In 16 bits each addition would be rounded: 5000 ones would sum to 256 in bfloat16. Eager mode rounds once.
        if dtype in (torch.float16, torch.bfloat16):
            return True
        extensions = torch.opencl.get_device_properties(device).extensions
        return is_cpu(device) or (dtype == torch.float64 and "cl_khr_int64_base_atomics" not in extensions)

    module.needs_fallback_due_to_atomic_add_limitations = lacks_atomic_add


def is_cpu(device: torch.device) -> bool:
    """Return whether an opencl device is a CPU."""
    return torch.opencl.get_device_properties(device).device_class == "cpu"


def overloads(module: Any, operators: Iterable[str]) -> Iterator[Any]:
    """Yield the overloads of operators that have lowerings.

    Args:
        module: torch._inductor.lowering.
        operators: names in ``torch.ops.aten`` and ``torch.ops.prims``.
    """
    for name in operators:
        for namespace in (torch.ops.aten, torch.ops.prims):
            packet = getattr(namespace, name, None)
            for overload in packet.overloads() if packet is not None else ():
                if (op := getattr(packet, overload)) in module.lowerings:
                    yield op


def eager_where(
    module: Any, op: Any, applies: Callable[[torch.device], bool], constrain: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Use the eager operator on opencl, and on other devices if the operator has no lowering.

    Args:
        module: torch._inductor.lowering.
        op: the operator.
        applies: returns whether to do so on an opencl device.
        constrain: a layout constraint of Inductor for its arguments; by default they keep the strides that they have
            in the graph, for which its fake has computed the result's strides.

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


def _keep_undecomposed(*args: Any, **kwargs: Any) -> Any:
    """A decomposition that does not decompose its operator."""
    return NotImplemented


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def _are_contiguous(*args: Any, **kwargs: Any) -> bool:
    tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)]
    return all(torch._prims_common.suggest_memory_format(x) == torch.contiguous_format for x in tensors)


def _has_known_sizes(x: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    """Return whether a tensor's sizes do not depend on data: the operators' fakes compare them."""
    return _are_known(x.size())


def _are_known(sizes: Any) -> bool:
    # Imported here: this module is imported together with fake tensors, which need no sympy.
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols  # noqa: PLC0415

    return not free_unbacked_symbols(sizes)


def _where_on_cpus(
    is_whole: Callable[..., bool], whole: Callable[..., Any], decompose: Callable[..., Any]
) -> Callable[..., Any]:
    """A decomposition that is `whole` on CPU devices if `is_whole` of the arguments holds, otherwise `decompose`."""

    @functools.wraps(decompose)
    def chosen(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        is_ours = x.device.type == "opencl" and is_cpu(x.device) and is_whole(x, *args, **kwargs)
        return (whole if is_ours else decompose)(x, *args, **kwargs)

    return chosen


def _recorded(op: Any) -> Callable[..., Any]:
    """An operator as autograd records it."""
    return functools.partial(op._op_dk, DispatchKey.Autograd)


def _with_size(op: Any) -> Callable[..., torch.Tensor]:
    """The overload of an interpolation that takes a list of scales, through the one that takes the output's size."""

    def interpolated(x: torch.Tensor, output_size: Any, *args: Any) -> torch.Tensor:
        *corners, scales = args
        sizes = torch._decomp.decompositions.upsample_compute_output_size(x.size(), output_size, scales)
        return op(x, sizes, *corners, *(map(float, scales) if scales else (None,) * len(sizes)))

    return interpolated


def _recording_device(function: Callable[..., Any], adds_always: bool) -> Callable[..., Any]:
    """Record the device of the first tensor while a lowering runs, if it adds to the tensor and sizes are known."""

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        nodes = [arg for arg in tree_leaves(args) if hasattr(arg, "get_size")]
        adds = adds_always or kwargs.get("reduce") is not None
        if not adds or not all(_are_known(node.get_size()) for node in nodes):
            return function(*args, **kwargs)
        with _adding_to(nodes[0].get_device()):
            return function(*args, **kwargs)

    return recorded


@contextmanager
def _adding_to(device: torch.device) -> Iterator[None]:
    token = _added_to.set(device)
    try:
        yield
    finally:
        _added_to.reset(token)
