"""transformers: layers of models in fewer kernel launches."""

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.models.llama import modeling_llama

from torch_opencl.kernels import compile_kernel

__all__ = ["fuse_layers", "restore"]

# For each replaced function its class or module, its name there, and the original.
_replaced: list[tuple[Any, str, FunctionType]] = []
_ROTARY = "apply_rotary_pos_emb"


def fuse_layers(model: nn.Module) -> None:
    """Compute RMSNorm layers with one launch instead of eight, and rotary embeddings with one instead of ten.

    This replaces functions of the model's classes and modules, for tensors on OpenCL devices. Functions that do
    something else than Llama's are left as they are.
    """
    for cls in {type(module) for module in model.modules()}:
        _replace(cls, "forward", _RMS_NORM, _fused_rms_norm)
        module = sys.modules[cls.__module__]
        if _steps(vars(module).get("rotate_half")) == _ROTATE_HALF:
            _replace(module, _ROTARY, _ROTARY_STEPS, _fused_rotary)


def restore() -> None:
    """Undo :func:`fuse_layers`."""
    while _replaced:
        setattr(*_replaced.pop())


def _replace(owner: Any, name: str, steps: Any, make: Callable[[FunctionType], Callable[..., Any]]) -> None:
    original = vars(owner).get(name)
    if isinstance(original, FunctionType) and _steps(original) == steps:
        _replaced.append((owner, name, original))
        setattr(owner, name, make(original))


def _steps(function: Any) -> tuple[Any, ...] | None:
    """Return what a function does: transformers has a copy of Llama's functions for most models."""
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    # A docstring is the first constant.
    constants = tuple(value for value in code.co_consts if value != function.__doc__)
    return code.co_code, code.co_names, constants


_RMS_NORM = _steps(modeling_llama.LlamaRMSNorm.forward)
_ROTATE_HALF = _steps(modeling_llama.rotate_half)
_ROTARY_STEPS = _steps(modeling_llama.apply_rotary_pos_emb)


def _are_fused(*tensors: torch.Tensor) -> bool:
    """Return True for tensors of one dtype on a device in eager mode, not under another mode or transform."""
    first = tensors[0]
    return (
        first.device.type == "opencl"
        and all(type(tensor) in (torch.Tensor, nn.Parameter) and tensor.dtype == first.dtype for tensor in tensors)
        and not torch.is_autocast_enabled("opencl")
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _fused_rms_norm(original: FunctionType) -> Callable[..., Any]:
    @functools.wraps(original)
    def forward(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        if not _are_fused(hidden_states, self.weight):
            return original(self, hidden_states)
        return functional.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)

    return forward


# Heads of queries, then of keys, of `size` elements each. An element and the one half a head away are a point, which is
# turned by the angle of its position.
_turn_heads = compile_kernel(
    """
    KERNEL void turn_heads(GLOBAL const T *q, GLOBAL const T *k, GLOBAL const T *cosines, GLOBAL const T *sines,
                           GLOBAL T *q_out, GLOBAL T *k_out, const size_t q_count, const size_t q_row,
                           const size_t k_row, const size_t positions, const size_t size) {
      const bool is_query = ELEMENT < (long)q_count;
      GLOBAL const T *from = is_query ? q : k;
      const long i = is_query ? ELEMENT : ELEMENT - (long)q_count;
      const long in_head = i % size, half_size = size / 2;
      // All sequences may share the angles.
      const long angle = i / (is_query ? q_row : k_row) % positions * size + in_head;
      const work_T other = in_head < half_size ? -load_T(from, i + half_size) : load_T(from, i - half_size);
      const work_T turned = load_T(from, i) * load_T(cosines, angle) + other * load_T(sines, angle);
      if (is_query) store_T(q_out, i, turned);
      else store_T(k_out, i, turned);
    }
    """,
    "turn_heads",
    types={"T": (torch.float32, torch.float16, torch.bfloat16)},
)


def _fused_rotary(original: FunctionType) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply_rotary_pos_emb(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if q.dim() != 4 or q.numel() == 0 or unsqueeze_dim != 1:
            return original(q, k, cos, sin, unsqueeze_dim)
        # [batch, position, head, element], as the linear layers made them.
        queries, keys = q.transpose(1, 2), k.transpose(1, 2)
        positions = (queries.shape[1], queries.shape[3])
        is_fused = (
            _are_fused(q, k, cos, sin)
            and q.dtype in (torch.float32, torch.float16, torch.bfloat16)
            and q.shape[3] % 2 == 0
            and all(tensor.is_contiguous() for tensor in (queries, keys, cos, sin))
            and cos.shape == sin.shape
            and cos.shape in ((len(queries), *positions), (1, *positions))
            and not torch.is_grad_enabled()
        )
        if not is_fused:
            return original(q, k, cos, sin, unsqueeze_dim)
        results = torch.empty_like(queries), torch.empty_like(keys)
        rows = [tensor.shape[1] * tensor.shape[3] for tensor in (q, k)]
        sizes = (q.numel(), *rows, len(cos) * positions[0], positions[1])
        _turn_heads(queries, keys, cos, sin, *results, *sizes, elements=q.numel() + k.numel())
        return results[0].transpose(1, 2), results[1].transpose(1, 2)

    return apply_rotary_pos_emb
