"""Models of torch_geometric."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from models.case import Case

NODES, EDGES, FEATURES = 1500, 9000, 48
SMALL = {"in_channels": FEATURES, "hidden_channels": 32, "num_layers": 2, "out_channels": 8}


class Stack(nn.Module):
    """Two layers and a pooling of all nodes of a graph.

    Args:
        layer: makes a layer from input and output features.
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


class Pooled(nn.Module):
    """A layer, a pooling that keeps half of the nodes, another layer, and a readout.

    Args:
        pooling: the name of its class.
    """

    def __init__(self, pooling: str) -> None:
        super().__init__()
        import torch_geometric

        self.first = torch_geometric.nn.GCNConv(FEATURES, 16)
        self.pool = getattr(torch_geometric.nn, pooling)(16, ratio=0.5)
        self.second = torch_geometric.nn.GCNConv(16, 8)
        self.readout = torch_geometric.nn.Set2Set(8, processing_steps=2)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        """Return features of the graphs."""
        x, edges, _, batch, *_ = self.pool(self.first(x, edges).relu(), edges, None, batch)
        return self.readout(self.second(x, edges), batch)


def _attending(layers: Any, inputs: int, outputs: int) -> nn.Module:
    convolution = layers.GCNConv(inputs, inputs)
    return layers.Sequential(
        "x, edges", [(layers.GPSConv(inputs, convolution, heads=2), "x, edges -> x"), nn.Linear(inputs, outputs)]
    )


def _made(name: str, **options: Any) -> nn.Module:
    import torch_geometric

    return getattr(torch_geometric.nn, name)(**SMALL, **options)


def _graph() -> dict[str, Any]:
    return {"args": (torch.randn(NODES, FEATURES), torch.randint(NODES, (2, EDGES)))}


def _sorted_graph() -> dict[str, Any]:
    x, edges = _graph()["args"]
    return {"args": (x, edges[:, edges[1].argsort()])}


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
    for name in ("GCN", "GraphSAGE", "GIN"):
        yield Case(f"torch_geometric/{name} sparse", partial(_made, name), _graph_as_matrix)
    for aggregation in ("max", "std", "median", "softmax", "lstm"):
        yield Case(
            f"torch_geometric/GraphSAGE {aggregation}", partial(_made, "GraphSAGE", aggr=aggregation), _sorted_graph
        )
    yield Case("torch_geometric/GATv2", partial(_made, "GAT", v2=True, heads=2), _graph)
    yield Case("torch_geometric/TransformerConv", partial(Stack, lambda g, i, o: g.TransformerConv(i, o)), _graphs)
    yield Case("torch_geometric/TAGConv", partial(Stack, lambda g, i, o: g.TAGConv(i, o)), _graphs)
    for name in ("GraphConv", "LEConv", "SGConv", "ARMAConv", "GENConv", "ResGatedGraphConv"):
        layer = lambda g, i, o, name=name: getattr(g, name)(i, o)  # noqa: E731
        yield Case(f"torch_geometric/{name}", partial(Stack, layer), _graphs)
    yield Case("torch_geometric/TopKPooling", partial(Pooled, "TopKPooling"), _graphs)
    yield Case("torch_geometric/SAGPooling", partial(Pooled, "SAGPooling"), _graphs)
    yield Case("torch_geometric/GPSConv", partial(Stack, _attending), _graphs)
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
