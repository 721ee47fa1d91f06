"""One call of an operator: the definition of a case, and its representation as Python source."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map_only

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "": lambda tensor: tensor,
    "conj": torch.conj,
    "neg": torch._neg_view,
}


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor argument of an operator.

    Attributes:
        tensor: its elements on the CPU, with the wanted layout (strides, offset, repeated elements).
        on_cpu: whether it stays on the CPU, as 0-d operands may.
        view: a lazy view on top of it, one of VIEWS.
        requires_grad: whether its gradient is compared.
    """

    tensor: torch.Tensor
    on_cpu: bool = False
    view: str = ""
    requires_grad: bool = False

    def on(self, device: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Copy the operand.

        Args:
            device: where to.
            dtype: what to convert the elements to; None for no conversion.

        Returns:
            A new tensor of the same layout.
        """
        flat = stored(self.tensor).to(dtype or self.tensor.dtype, copy=True)
        placed = flat if self.on_cpu else flat.to(device)
        tensor = placed.as_strided(self.tensor.shape, self.tensor.stride(), self.tensor.storage_offset())
        return VIEWS[self.view](tensor).detach().requires_grad_(self.requires_grad)


@dataclass(frozen=True, eq=False)
class Case:
    """A call: an expression for the function, and nested operands and other values.

    Attributes:
        name: an expression that gives the function, in terms of `torch`, `F` and `opinfo`.
        args: positional arguments; a tensor is an `Operand`.
        kwargs: arguments by name.
        gradients: whether to also compare the gradients of operands that require them.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    gradients: bool = False

    @property
    def function(self) -> Callable:
        """The function."""
        return resolve(self.name)

    @property
    def operands(self) -> list[Operand]:
        """The operands, in order."""
        return [leaf for leaf in tree_flatten((self.args, self.kwargs))[0] if isinstance(leaf, Operand)]

    def with_operands(self, change: Callable[[Operand], Operand]) -> "Case":
        """Apply a function to the operands.

        Args:
            change: the function, called with each operand.

        Returns:
            The case with the operands it returned.
        """
        args, kwargs = tree_map_only(Operand, change, (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)

    def code(self) -> str:
        """Write the case as a program.

        Returns:
            Python source that prints the results of both devices.
        """
        lines, names = [], {}
        for number, operand in enumerate(self.operands):
            names[id(operand)] = f"x{number}"
            lines.append(f"    x{number} = {literal(operand)}")
        args = [written(value, names) for value in self.args]
        args += [f"{key}={written(value, names)}" for key, value in self.kwargs.items()]
        call = f"{self.name}({', '.join(args)})"
        if self.gradients:
            wanted = ", ".join(names[id(operand)] for operand in self.operands if operand.requires_grad)
            lines += [
                f"    results = [r for r in tree_leaves({call}) if isinstance(r, torch.Tensor) and r.requires_grad]",
                f"    weights = {WEIGHTS}",
                f"    return results, torch.autograd.grad(results, [{wanted}], weights, allow_unused=True)",
            ]
        elif self.operands:
            lines.append(f"    return {call}, {', '.join(names.values())}")
        else:
            lines.append(f"    return {call}")
        body = "\n".join(lines)
        imports = ["import torch"]
        if "F." in call:
            imports.append("import torch.nn.functional as F")
        imports.append("from torch import inf, nan")
        if self.gradients:
            imports.append("from torch.utils._pytree import tree_leaves")
        if "opinfo(" in call:
            imports.append("from torch.testing._internal.common_methods_invocations import op_db")
            imports.append("opinfo = lambda name: next(info.op for info in op_db if info.full_name == name)")
        head = "\n".join(imports)
        return f'{head}\n\ndef run(device):\n{body}\n\nfor device in ("cpu", "opencl"):\n    print(run(device))\n'


# Weights of the sum that is differentiated, so that symmetric errors do not cancel. Made on the CPU in float32, for
# all devices.
WEIGHTS = "[torch.linspace(0.5, 1.75, r.numel()).view(r.shape).to(r.device, r.dtype) for r in results]"


@cache
def resolve(name: str) -> Callable:
    """Evaluate the name of a function.

    Args:
        name: `torch.add`, `F.relu`, `opinfo("linalg.lu_solve")`, `planted.add`.

    Returns:
        The function.
    """
    from fuzz import planted  # used by the tests of this package

    scope = {"torch": torch, "F": torch.nn.functional, "planted": planted, "opinfo": _opinfo}
    return eval(name, scope)


def _opinfo(name: str) -> Callable:
    return next(info.op for info in op_db if info.full_name == name)


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """View the storage of a tensor.

    Args:
        tensor: a CPU tensor.

    Returns:
        All elements of its storage, in one dimension.
    """
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((elements,), (1,), 0)


def written(value: Any, names: dict[int, str]) -> str:
    """Write an argument as Python.

    Args:
        value: an operand, a number, nested containers of them...
        names: the operands' names, by `id`.

    Returns:
        An expression.
    """
    if isinstance(value, Operand):
        return names[id(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        value = tuple(value)
    if isinstance(value, list | tuple):
        inner = ", ".join(written(item, names) for item in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {written(item, names)}" for key, item in value.items()) + "}"
    if isinstance(value, torch.device) or value == "cpu":
        return "device"
    return repr(value)


def literal(operand: Operand) -> str:
    """Write an operand as Python.

    Args:
        operand: the operand.

    Returns:
        An expression; `device` is the device's name.
    """
    tensor = operand.tensor
    if tensor.is_contiguous() and stored(tensor).numel() == tensor.numel() and tensor.numel() > 0:
        text = f"torch.tensor({numbers(tensor.tolist())}, dtype={tensor.dtype}"
    elif tensor.numel() == 0 and tensor.is_contiguous():
        text = f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype}"
    else:
        text = f"torch.tensor({numbers(stored(tensor).tolist())}, dtype={tensor.dtype}"
    text += ")" if operand.on_cpu else ", device=device)"
    if not text.startswith("torch.empty") and not (tensor.is_contiguous() and stored(tensor).numel() == tensor.numel()):
        text += f".as_strided({tuple(tensor.shape)}, {tensor.stride()}, {tensor.storage_offset()})"
    if operand.view:
        text = {"conj": f"{text}.conj()", "neg": f"torch._neg_view({text})"}[operand.view]
    return text + (".requires_grad_()" if operand.requires_grad else "")


def numbers(values: Any) -> str:
    """Write values as Python.

    Args:
        values: a number, or nested lists of them.

    Returns:
        An expression in which `nan` and `inf` are names; long runs of an equal value are abbreviated.
    """
    if isinstance(values, list):
        if len(values) > 8 and all(repr(value) == repr(values[0]) for value in values):
            return f"[{numbers(values[0])}] * {len(values)}"
        return "[" + ", ".join(map(numbers, values)) + "]"
    if isinstance(values, complex):
        return f"complex({values.real!r}, {values.imag!r})"
    return repr(values)
