"""Models that need only PyTorch, which CI runs."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks import models
from models.case import Case

NODES = 200


def image(*shape: int) -> dict[str, Any]:
    """Make an image as a model's first argument.

    Args:
        shape: of the batch.

    Returns:
        The arguments.
    """
    return {"args": (torch.randn(shape),)}


def text(vocabulary: int, *shape: int) -> dict[str, Any]:
    """Make tokens as a model's first argument.

    Args:
        vocabulary: the number of different tokens.
        shape: of the batch.

    Returns:
        The arguments.
    """
    return {"args": (torch.randint(vocabulary, shape),)}


class Translator(nn.Module):
    """An encoder and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.transformer = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return features of the target."""
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return self.transformer(self.embedding(source), self.embedding(target), tgt_mask=mask)


class GraphConvolution(nn.Module):
    """Two layers that multiply by a sparse adjacency matrix of a graph, as in Kipf and Welling's GCN.

    Args:
        layout: the layout of the matrix.
    """

    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        adjacency = (torch.rand(NODES, NODES) < 0.05).float() + torch.eye(NODES)
        self.register_buffer("adjacency", (adjacency / adjacency.sum(1, keepdim=True)).to_sparse(layout=layout))
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return classes of the nodes."""
        hidden = torch.sparse.mm(self.adjacency, self.first(features)).relu()
        return torch.sparse.mm(self.adjacency, self.second(hidden))


class Recommender(nn.Module):
    """Products of embeddings of users and items, and a bag of features; gradients are dense here.

    Args:
        kind: an embedding of recurrent use, "sum" or "mean".
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(100, 16), nn.Embedding(200, 16)
        self.features = nn.EmbeddingBag(50, 16, mode=kind)
        self.head = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, users: torch.Tensor, items: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Return a score for each pair."""
        together = torch.cat([self.users(users), self.items(items), self.features(features)], 1)
        return functional.logsigmoid(self.head(together))


def _pairs() -> dict[str, Any]:
    return {"args": (torch.randint(100, (64,)), torch.randint(200, (64,)), torch.randint(50, (64, 5)))}


def cases() -> Iterator[Case]:
    """List the models.

    Yields:
        Each model.
    """
    yield Case("torch/resnet18", models.resnet18, partial(image, 2, 3, 64, 64))
    yield Case("torch/lenet", models.lenet, partial(image, 8, 1, 8, 8))
    small = {"vocabulary": 100, "tokens": 32, "width": 32, "layers": 2, "heads": 4}
    yield Case("torch/gpt", partial(models.Decoder, **small), partial(text, 100, 2, 16))
    yield Case("torch/lstm", partial(models.TextLSTM, 100, 32), partial(text, 100, 4, 12))
    yield Case(
        "torch/transformer", Translator, lambda: {"args": (torch.randint(50, (2, 7)), torch.randint(50, (2, 9)))}
    )
    for layout in (torch.sparse_coo, torch.sparse_csr):
        name = str(layout).removeprefix("torch.")
        yield Case(f"torch/gcn_{name}", partial(GraphConvolution, layout), partial(image, NODES, 16))
    yield Case("torch/recommender", partial(Recommender, "mean"), _pairs)
