"""Runs graphs on opencl in eager mode if this PyTorch's compiler is not as this package expects."""

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from torch_opencl import _hooks, _load

from .eager_kernels import eager_interpolations
from .settings import with_settings


def install(module: Any) -> None:
    """Check, before a graph is compiled, whether that is possible.

    Args:
        module: torch._inductor.compile_fx.
    """
    compile_fx = module.compile_fx

    @functools.wraps(compile_fx)
    def compile_or_not(
        model: Any, example_inputs: Any, inner_compile: Any = module.compile_fx_inner, *args: Any, **options: Any
    ) -> Any:
        if _is_for_opencl(model, example_inputs):
            if path := _load.native().bundle_path():
                _warn(f": with TORCH_OPENCL_KERNEL_BUNDLE={path} no kernels are compiled.")
                return model
            if failure := next(iter(_hooks.failures), None):
                _warn(
                    f" with torch {torch.__version__}: {failure}. Install a release of PyTorch that torch-opencl-rs "
                    "names as supported to have kernels generated."
                )
                return model
            with eager_interpolations():
                return compile_fx(model, example_inputs, with_settings(inner_compile), *args, **options)
        return compile_fx(model, example_inputs, inner_compile, *args, **options)

    module.compile_fx = compile_or_not


def _is_for_opencl(model: Any, example_inputs: Any) -> bool:
    if any(_is_on_opencl(value) for value in example_inputs if isinstance(example_inputs, Sequence)):
        return True
    # Tensors that the graph creates.
    nodes = model.graph.nodes if isinstance(model, torch.fx.GraphModule) else ()
    return any(_is_on_opencl(node.meta.get("example_value", node.meta.get("val"))) for node in nodes)


def _is_on_opencl(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "opencl"


@functools.cache
def _warn(reason: str) -> None:
    """Warn, once for each reason."""
    warnings.warn(f"torch.compile runs graphs on opencl in eager mode{reason}", RuntimeWarning, stacklevel=2)
