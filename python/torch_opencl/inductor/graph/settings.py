"""Settings of PyTorch's compiler for graphs on opencl."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.virtualized import V

from torch_opencl.inductor.layout import splits


def with_settings(compile_inner: Callable[..., Any]) -> Callable[..., Any]:
    """Compile graphs with our settings; a backward pass too, though that is compiled later.

    Args:
        compile_inner: torch._inductor.compile_fx.compile_fx_inner, or a function that calls it.

    Returns:
        A function that has its parameters.
    """

    @functools.wraps(compile_inner)
    def compile_with_settings(gm: torch.fx.GraphModule, *args: Any, **options: Any) -> Any:
        choices = V.set_choices_handler(splits.choices(V.choices))
        with config.patch(layout_optimization=config.layout_optimization and not _keeps_layouts(gm)), choices:
            return compile_inner(gm, *args, **options)

    return compile_with_settings


def _keeps_layouts(gm: torch.fx.GraphModule) -> bool:
    """Return whether convolutions keep their input's layout; PyTorch would make them channels-last, as suits CUDA.

    A training step of ResNet-18 takes 1.36 times as long with channels-last (PoCL, processor time; ``make bench
    CASES="compiled ResNet"``).
    """
    convolutions = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)
    is_ours = any(node.args[0].meta["val"].device.type == "opencl" for node in convolutions)
    return is_ours and not config.force_layout_optimization
