"""8-bit weights: few rows are multiplied by the stored weight instead of a converted copy."""

import torch
from torch.fx import GraphModule, Node

_aten, _prims = torch.ops.aten, torch.ops.prims
# From this many rows on, the matmul with a converted copy is faster; rust/ops/quantized has a kernel for fewer.
MANY_ROWS = 16
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def multiply_as_stored(gm: GraphModule) -> None:
    """Replace `x @ weight.to(x.dtype).t()` for a weight of int8 and few rows of x.

    In float32 the copy costs nine bytes of reads and writes per byte of the weight in each call, and a matmul with few
    rows does little more than read the weight.

    Args:
        gm: a graph of ATen operators.
    """
    for node in gm.graph.find_nodes(op="call_function", target=_aten.mm.default):
        weight = _stored(node.args[1])
        if weight is None or not _suits(node.args[0].meta["val"], weight.meta["val"]):
            continue
        x = node.args[0]
        with gm.graph.inserting_before(node):
            like = x.meta["val"]
            columns = weight.meta["val"].shape[0]
            scales = gm.graph.call_function(
                _aten.full.default, ([columns], 1.0), {"dtype": like.dtype, "device": like.device, "pin_memory": False}
            )
            scales.meta["val"] = like.new_empty([columns])
            matmul = gm.graph.call_function(_aten._weight_int8pack_mm.default, (x, weight, scales))
        matmul.meta.update(node.meta)
        node.replace_all_uses_with(matmul)
        gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()


def _stored(node: Node) -> Node | None:
    """The int8 tensor [columns, k] whose transposed and converted copy a node is; None for other nodes."""
    is_transposed, is_converted = False, False
    while isinstance(node, Node) and node.op == "call_function":
        if node.target is _aten.permute.default and list(node.args[1]) == [1, 0]:
            is_transposed = not is_transposed
        elif node.target is _prims.convert_element_type.default and not is_converted:
            is_converted = True
        else:
            break
        node = node.args[0]
    value = node.meta.get("val")
    is_int8 = isinstance(value, torch.Tensor) and value.dtype == torch.int8
    return node if is_transposed and is_converted and is_int8 else None


def _suits(x: torch.Tensor, weight: torch.Tensor) -> bool:
    rows = x.shape[0]
    is_few = isinstance(rows, int) and rows < MANY_ROWS
    return is_few and x.device.type == "opencl" and x.dtype in _DTYPES and weight.is_contiguous()
