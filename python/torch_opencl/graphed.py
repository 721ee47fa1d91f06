"""Callables whose forward and backward passes are graphs: helpers of ``make_graphed_callables``."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

Tensors = tuple[torch.Tensor, ...]


def check_callable(function: Callable[..., Any]) -> None:
    """Refuse modules whose calls do more than a graph can replay.

    Args:
        function: a function or a module.

    Raises:
        RuntimeError: the module has hooks, or buffers that require gradients.
    """
    if not isinstance(function, torch.nn.Module):
        return
    if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
        raise RuntimeError("Modules must not have hooks when they are graphed. Add hooks afterwards.")
    if any(buffer.requires_grad for buffer in function.buffers()):
        raise RuntimeError("Modules must not have buffers that require gradients when they are graphed.")


class GraphedCallable:
    """A function or module, its static tensors and its two graphs.

    Args:
        function: the function or module to capture.
        arguments: tensors of a call.
        allows_unused: whether inputs may have no gradient.

    Raises:
        RuntimeError: an argument is not a tensor on an OpenCL device.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], allows_unused: bool) -> None:
        self.function = function
        self.arguments = arguments
        self.inputs: Tensors = tuple(pytree.tree_leaves(arguments))
        if not all(isinstance(leaf, torch.Tensor) for leaf in self.inputs):
            raise RuntimeError("sample_args must hold tensors only: other arguments cannot change between replays.")
        _check_devices("sample_args", self.inputs)
        self.parameters: Tensors = tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()
        self.allows_unused = allows_unused
        self.forward_graph: Any = None
        self.backward_graph: Any = None
        self.outputs: Tensors = ()
        self.structure: Any = None
        self.output_gradients: tuple[torch.Tensor | None, ...] = ()
        self.gradients: tuple[torch.Tensor | None, ...] = ()
        self.replays = 0

    @property
    def surface(self) -> Tensors:
        """Inputs and parameters: the inputs of the autograd function."""
        return (*self.inputs, *self.parameters)

    def _gradients_of(self, outputs: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        wanted = [tensor for tensor in self.surface if tensor.requires_grad]
        if not wanted or not outputs:
            return (None,) * len(self.surface)
        found = iter(torch.autograd.grad(outputs, wanted, gradients, allow_unused=self.allows_unused))
        return tuple(next(found) if tensor.requires_grad else None for tensor in self.surface)

    def _differentiable(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [output for output in outputs if output.requires_grad]

    def warm_up(self, count: int) -> None:
        """Run forward and backward, so that kernels are built and sizes known before the capture.

        Args:
            count: the number of runs.
        """
        for _ in range(count):
            outputs = self._differentiable(pytree.tree_leaves(self.function(*self.arguments)))
            self._gradients_of(outputs, [torch.zeros_like(output) for output in outputs])

    def capture_forward(self) -> None:
        """Call the function; its outputs become the static outputs.

        Raises:
            RuntimeError: an output is a tensor of another device.
        """
        outputs, self.structure = pytree.tree_flatten(self.function(*self.arguments))
        self.outputs = tuple(outputs)
        _check_devices("results", self.outputs)

    def capture_backward(self) -> None:
        """Compute the gradients of static outputs; these gradients are static tensors too."""
        self.output_gradients = tuple(
            torch.empty_like(output) if output.requires_grad else None for output in self.outputs
        )
        gradients = [gradient for gradient in self.output_gradients if gradient is not None]
        self.gradients = self._gradients_of(self._differentiable(self.outputs), gradients)

    def replayed(self, inputs: Sequence[torch.Tensor]) -> Any:
        """Replay with other inputs.

        Args:
            inputs: as many tensors as in ``sample_args``, with the same strides.

        Returns:
            The structure that the function returned at the capture, with the values for these inputs.

        Raises:
            RuntimeError: the tensors do not match ``sample_args``.
        """
        if len(inputs) != len(self.inputs):
            raise RuntimeError(f"this graph was captured with {len(self.inputs)} tensors, but got {len(inputs)}")
        return pytree.tree_unflatten(_Replay.apply(self, *inputs, *self.parameters), self.structure)

    def wrapped(self) -> Callable[..., Any]:
        """Return the callable for the user.

        Returns:
            A function; for a module, the module itself.
        """
        if not isinstance(self.function, torch.nn.Module):
            return lambda *arguments: self.replayed(pytree.tree_leaves(arguments))
        module, forward, training = self.function, self.function.forward, self.function.training

        def graphed_forward(*arguments: Any, **named: Any) -> Any:
            if module.training != training or named:
                return forward(*arguments, **named)
            return self.replayed(pytree.tree_leaves(arguments))

        module.forward = graphed_forward
        return module


def _check_devices(name: str, tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "opencl":
            raise RuntimeError(
                f"{name} hold a tensor on {tensor.device}: a graph replays work on opencl only, and would repeat what "
                "was computed elsewhere at the capture."
            )


def _fill(static: torch.Tensor, given: torch.Tensor) -> None:
    if (static.shape, static.dtype, static.device) != (given.shape, given.dtype, given.device):
        raise RuntimeError(
            f"this graph was captured with a tensor of shape {tuple(static.shape)}, {static.dtype} on {static.device}, "
            f"but got {tuple(given.shape)}, {given.dtype} on {given.device}"
        )
    if static.data_ptr() != given.data_ptr():
        static.copy_(given)


class _Replay(torch.autograd.Function):
    """Replays a captured forward pass and its backward pass."""

    @staticmethod
    def forward(ctx: Any, graphed: GraphedCallable, *surface: torch.Tensor) -> Tensors:
        ctx.graphed = graphed
        ctx.are_leaves = [tensor.is_leaf for tensor in surface]
        for static, given in zip(graphed.inputs, surface, strict=False):
            _fill(static, given)
        graphed.forward_graph.replay()
        graphed.replays += 1
        ctx.replay = graphed.replays
        outputs = tuple(output.detach() for output in graphed.outputs)
        constant = (result for result, output in zip(outputs, graphed.outputs, strict=True) if not output.requires_grad)
        ctx.mark_non_differentiable(*constant)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        graphed: GraphedCallable = ctx.graphed
        if ctx.replay != graphed.replays:
            raise RuntimeError(
                "a graphed callable was called again before the backward pass of this call, and has overwritten its "
                "saved tensors: pass make_graphed_callables one callable for each call of a step."
            )
        for static, given in zip(graphed.output_gradients, gradients, strict=True):
            if static is not None:
                _fill(static, torch.zeros_like(static) if given is None else given)
        graphed.backward_graph.replay()
        # Leaves keep the gradient as `.grad`, and the next replay would overwrite it.
        results = (
            None if gradient is None else gradient.clone() if is_leaf else gradient.detach()
            for gradient, is_leaf in zip(graphed.gradients, ctx.are_leaves, strict=True)
        )
        return (None, *results)
