"""Models of torch_geometric."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from models.case import Case

NODES, EDGES, FEATURES = 60, 240, 12
SMALL = {"in_channels": FEATURES, "hidden_channels": 16, "num_layers": 2, "out_channels": 4}


class Stack(nn.Module):
    """Two layers and a pooling of all nodes of a graph.

    Args:
        layer: makes a layer, of input and output features.
        more: makes arguments of the layers besides features and edges.
    """

    def __init__(self, layer: Callable[[Any, int, int], nn.Module], more: Callable[[], tuple] = tuple) -> None:
        super().__init__()
        import torch_geometric

        self.first, self.second = layer(torch_geometric.nn, FEATURES, 16), layer(torch_geometric.nn, 16, 8)
        self.more = more
        self.pool = torch_geometric.nn.global_mean_pool

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor, *more: Any) -> torch.Tensor:
        """Return features of the graphs."""
        return self.pool(self.second(self.first(x, edges, *more).relu(), edges, *more), batch)


def _made(name: str, **options: Any) -> nn.Module:
    import torch_geometric

    return getattr(torch_geometric.nn, name)(**SMALL, **options)


def _graph() -> dict[str, Any]:
    return {"args": (torch.randn(NODES, FEATURES), torch.randint(NODES, (2, EDGES)))}


def _graph_as_matrix() -> dict[str, Any]:
    x, edges = _graph()["args"]
    matrix = torch.sparse_coo_tensor(edges, torch.ones(EDGES), (NODES, NODES)).coalesce().to_sparse_csr()
    return {"args": (x, matrix)}


def _graphs(*more: torch.Tensor) -> dict[str, Any]:
    batch = torch.arange(NODES) // (NODES // 3)
    return {"args": (*_graph()["args"], batch, *more)}


def cases() -> Iterator[Case]:
    """List the models.

    Yields:
        Each model.
    """
    for name in ("GCN", "GraphSAGE", "GAT", "GIN", "EdgeCNN"):
        yield Case(f"torch_geometric/{name}", partial(_made, name), _graph)
    yield Case("torch_geometric/GraphSAGE sparse", partial(_made, "GraphSAGE"), _graph_as_matrix)
    yield Case("torch_geometric/TransformerConv", partial(Stack, lambda g, i, o: g.TransformerConv(i, o)), _graphs)
    yield Case("torch_geometric/TAGConv", partial(Stack, lambda g, i, o: g.TAGConv(i, o)), _graphs)
    yield Case("torch_geometric/ChebConv", partial(Stack, lambda g, i, o: g.ChebConv(i, o, K=3)), _graphs)
    relations = lambda: _graphs(torch.randint(3, (EDGES,)))  # noqa: E731
    yield Case("torch_geometric/RGCNConv", partial(Stack, lambda g, i, o: g.RGCNConv(i, o, 3)), relations)
    yield Case(
        "torch_geometric/PNAConv",
        partial(
            Stack,
            lambda g, i, o: g.PNAConv(
                i, o, ["mean", "max", "std"], ["identity", "amplification"], torch.tensor([0, 5, 20, 20, 15])
            ),
        ),
        _graphs,
    )
