"""``flex_attention``: graphs compute it with the operators that define it, which Inductor fuses with its functions."""

import importlib
import operator
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree


def allow(module: Any) -> None:
    """Add the device to those that PyTorch accepts.

    Args:
        module: torch.nn.attention.flex_attention.
    """
    # Dynamo traces the function, so it must stay the same object; only its constant set is replaced.
    validate = module._validate_device
    devices = [each for each in validate.__code__.co_consts if isinstance(each, frozenset) and "cuda" in each]
    if len(devices) != 1:
        # In this release PyTorch itself rejects the device.
        return
    constants = tuple(each | {"opencl"} if each in devices else each for each in validate.__code__.co_consts)
    validate.__code__ = validate.__code__.replace(co_consts=constants)


def inline(graph_module: torch.fx.GraphModule) -> None:
    """Replace each ``flex_attention`` and each of its backward passes by the operators that define it.

    Args:
        graph_module: a graph of ATen operators, with the fake results of all nodes.
    """
    # `torch._higher_order_ops.flex_attention` as an attribute is the operator, not the module.
    definitions = importlib.import_module("torch._higher_order_ops.flex_attention")
    functions = {
        definitions.flex_attention: definitions.sdpa_dense,
        definitions.flex_attention_backward: definitions.sdpa_dense_backward,
    }
    nodes = [node for node in graph_module.graph.nodes if node.target in functions]
    for node in nodes:
        _replace(graph_module, node, functions[node.target])
    if nodes:
        graph_module.graph.eliminate_dead_code()
        graph_module.recompile()


def _replace(graph_module: torch.fx.GraphModule, node: torch.fx.Node, function: Any) -> None:
    traced, inputs = _trace(graph_module, node, function)
    graph = graph_module.graph
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    with graph.inserting_before(node):
        placeholders = iter(inputs)
        for each in traced.graph.nodes:
            if each.op == "placeholder":
                copies[each] = next(placeholders)
            elif each.op == "get_attr":
                name = f"_opencl_{node.name}_{each.name}"
                setattr(graph_module, name, getattr(traced, each.target))
                copies[each] = graph.get_attr(name)
                copies[each].meta = dict(each.meta)
            elif each.op == "output":
                results = pytree.tree_map_only(torch.fx.Node, copies.get, each.args[0])
            else:
                copies[each] = graph.node_copy(each, copies.get)
    _take_from(node, results)
    graph.erase_node(node)


def _take_from(node: torch.fx.Node, results: Any) -> None:
    """Replace the parts of a node's results by nodes, also nested parts."""
    for user in list(node.users):
        assert user.target is operator.getitem, user
        part = results[user.args[1]]
        if isinstance(part, tuple | list):
            _take_from(user, part)
        elif part is not None:
            user.replace_all_uses_with(part)
        elif user.users:
            # The dense form makes them for tensors that require gradients, and no tensor of a traced graph does.
            raise NotImplementedError(
                "flex_attention compiled for opencl gives no gradients of tensors that score_mod captures: "
                "detach them, or call it outside of torch.compile"
            )
        user.graph.erase_node(user)


def _trace(
    graph_module: torch.fx.GraphModule, node: torch.fx.Node, function: Any
) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
    """Trace a node's computation; return the graph and the nodes that are its inputs."""
    leaves, structure = pytree.tree_flatten(
        (node.args, node.kwargs), is_leaf=lambda leaf: isinstance(leaf, torch.fx.Node)
    )
    modules = {
        leaf: getattr(graph_module, leaf.target)
        for leaf in leaves
        if isinstance(leaf, torch.fx.Node)
        and leaf.op == "get_attr"
        and not isinstance(leaf.meta.get("val"), torch.Tensor)
    }
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.fx.Node) and leaf not in modules]
    fakes = [leaf.meta["val"] for leaf in inputs]

    def call(*tensors: Any) -> Any:
        values = iter(tensors)
        filled = [
            (modules[leaf] if leaf in modules else next(values)) if isinstance(leaf, torch.fx.Node) else leaf
            for leaf in leaves
        ]
        args, kwargs = pytree.tree_unflatten(filled, structure)
        return function(*args, **kwargs)

    # Imported here: this module is imported together with flex_attention, which by itself needs no compiler.
    from torch._inductor.decomposition import select_decomp_table  # noqa: PLC0415

    functional = torch.func.functionalize(call, remove="mutations_and_views")
    with detect_fake_mode(fakes), torch.no_grad():
        return make_fx(functional, decomposition_table=select_decomp_table())(*fakes), inputs
