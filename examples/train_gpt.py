"""Trains a small GPT on the characters of Python's language reference, which Python ships, and generates some text.

The model predicts the next character from up to 64 previous ones. With matplotlib it plots the losses into a file.

    python examples/train_gpt.py [--device opencl:1] [--steps 1000] [--plot losses.png] [--compile]
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

# PyTorch's idle CPU threads spin by default, and take the processor from an OpenCL driver that runs on it.
# Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from pydoc_data import topics

import torch
import torch.nn.functional as F
from torch import nn

CONTEXT = 64


class Block(nn.Module):
    """Causal self-attention and a multilayer perceptron, each with a norm before it and a residual around it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return activations of the shape of ``x``: [batch, tokens, width]."""
        batch, tokens, width = x.shape
        heads = self.query_key_value(self.norm_attention(x)).view(batch, tokens, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    """A decoder-only transformer over a vocabulary of characters."""

    def __init__(self, vocabulary: int, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, tokens, vocabulary] of the characters that follow ``tokens`` [batch, tokens]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions(positions))))


def train(model: GPT, text: torch.Tensor, steps: int, batch_size: int, compiled: bool) -> list[float]:
    """Train a model in place.

    Args:
        model: the model, on the device of ``text``.
        text: indices of characters, int64, of one dimension.
        steps: the number of steps.
        batch_size: sequences in a step.
        compiled: whether to compile the model with ``torch.compile``.

    Returns:
        The loss of each step: nats per character.
    """
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    offsets = torch.arange(CONTEXT + 1, device=text.device)
    losses = []
    for step in range(steps):
        start = torch.randint(len(text) - CONTEXT, (batch_size, 1), device=text.device)
        sequences = text[start + offsets]
        logits = forward(sequences[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        # Stays on the device: reading it here would make every step wait.
        losses.append(loss.detach())
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:5}: loss {losses[-1].item():.3f}", flush=True)
    return torch.stack(losses).tolist()


@torch.inference_mode()
def generate(model: GPT, tokens: torch.Tensor, count: int) -> torch.Tensor:
    """Return ``tokens`` [tokens] followed by ``count`` characters drawn from the model."""
    for _ in range(count):
        probabilities = model(tokens[None, -CONTEXT:])[0, -1].softmax(0)
        tokens = torch.cat([tokens, torch.multinomial(probabilities, 1)])
    return tokens


def plot(losses: list[float], path: Path) -> None:
    """Write a plot of the losses, if matplotlib is installed."""
    try:
        import matplotlib.pyplot as plt  # noqa: PLC0415
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="loss (nats per character)", title="A small GPT on Python's language reference")
    figure.savefig(path)
    print(f"plotted into {path}")


def main() -> int:
    """Train, generate text, and plot.

    Returns:
        The exit code: 1 if the model has learned nothing.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default=torch.device("opencl"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--plot", type=Path, help="file for a plot of the losses")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    options = parser.parse_args()

    torch.manual_seed(0)
    text = "\n".join(topics.topics.values())
    characters = sorted(set(text))
    index = {character: i for i, character in enumerate(characters)}
    tokens = torch.tensor([index[character] for character in text], device=options.device)
    model = GPT(len(characters)).to(options.device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(text)} characters, on {options.device}")

    begin = time.perf_counter()
    losses = train(model, tokens, options.steps, options.batch_size, options.compile)
    print(f"{options.steps} steps in {time.perf_counter() - begin:.1f} s")
    if options.plot:
        plot(losses, options.plot)
    written = generate(model.eval(), tokens[:1], 200).tolist()
    print("".join(characters[i] for i in written))

    # The loss of uniform guessing.
    if not losses[-1] < math.log(len(characters)):
        print("FAILED: the model is no better than guessing", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
