"""Small models and batches for distributed_cases.py, equal in every process."""

import torch
from torch import nn


def convolutional() -> nn.Module:
    """Return a network with normalisation, equal in every process."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 6 * 6, 10),
    )


class Gpt(nn.Module):
    """A language model of two blocks, over 16 tokens of 50."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = nn.Embedding(50, 32), nn.Parameter(torch.randn(16, 32) * 0.02)
        make = lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)  # noqa: E731
        self.blocks = nn.ModuleList(make() for _ in range(2))
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the following tokens."""
        mask = nn.Transformer.generate_square_subsequent_mask(16, device=tokens.device)
        features = self.tokens(tokens) + self.places
        for block in self.blocks:
            features = block(features, src_mask=mask.to(features.dtype))
        return self.head(features).float()


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch for `convolutional`."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 3, 8, 8, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def text() -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch for `Gpt`, and the following tokens."""
    tokens = torch.randint(0, 50, (4, 17), generator=torch.Generator().manual_seed(3))
    return tokens[:, :-1], tokens[:, 1:]


def losses(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, lr: float = 0.1) -> torch.Tensor:
    """Train for three steps, and return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)
    result = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        result.append(loss.detach())
    return torch.stack(result)
