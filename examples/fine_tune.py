"""Fine-tunes an image classifier: a network trained on the digits 0 to 4 learns 5 to 9 from few examples.

The network is first trained on five classes and saved, in place of a pretrained checkpoint. Then it is loaded onto the
device, gets a new head, and is trained on ten images of each new class: first the head alone, then all layers at a
lower learning rate. Images are scikit-learn's handwritten digits.

    python examples/fine_tune.py [--device opencl:1]
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

# PyTorch's idle CPU threads spin by default, and take the processor from an OpenCL driver that runs on it.
# Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from sklearn.datasets import load_digits
from torch import nn

SHOTS = 10
# Guessing one of five classes gives 20 %.
MINIMUM_ACCURACY = 0.8


class Classifier(nn.Module):
    """A small residual network for images of 8x8 pixels."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.residual = nn.Sequential(
            nn.Conv2d(32, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
        )
        self.pool = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(128, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, classes] of images [batch, 1, 8, 8]."""
        features = self.stem(images)
        return self.head(self.pool(features + self.residual(features)))


def fit(
    model: Classifier,
    parameters: list[nn.Parameter],
    images: torch.Tensor,
    labels: torch.Tensor,
    *,
    steps: int,
    lr: float,
) -> None:
    """Train parameters of a model on random batches of 64 images.

    Args:
        model: the model, on the device of the images.
        parameters: the parameters to train.
        images: [n, 1, 8, 8], float32.
        labels: [n], int64.
        steps: the number of batches.
        lr: the learning rate of Adam.
    """
    optimizer = torch.optim.Adam(parameters, lr=lr)
    for _ in range(steps):
        batch = torch.randint(len(labels), (64,), device=labels.device)
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.inference_mode()
def accuracy(model: Classifier, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of images [n, 1, 8, 8] for which a model in evaluation mode predicts the label [n]."""
    return (model(images).argmax(1) == labels).float().mean().item()


def main() -> int:
    """Train, save, load, fine-tune.

    Returns:
        The exit code: 1 if the accuracy on the new classes is too low.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default=torch.device("opencl"))
    parser.add_argument("--steps", type=int, default=150, help="of the first training; fine-tuning takes as many")
    options = parser.parse_args()

    torch.manual_seed(0)
    pixels, classes = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32, device=options.device).view(-1, 1, 8, 8) / 16
    labels = torch.tensor(classes, device=options.device)
    old, new = labels < 5, labels >= 5

    model = Classifier(5).to(options.device)
    fit(model, list(model.parameters()), images[old], labels[old], steps=options.steps, lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "digits.pt"
        torch.save(model.state_dict(), checkpoint)
        # With map_location a checkpoint from any device can be loaded, even if this machine lacks that device.
        state = torch.load(checkpoint, map_location=options.device, weights_only=True)

    model = Classifier(5).to(options.device)
    model.load_state_dict(state)
    model.head = nn.Linear(128, 5, device=options.device)
    images, labels = images[new], labels[new] - 5
    shots = torch.cat([(labels == digit).nonzero()[:SHOTS, 0] for digit in range(5)])
    rest = torch.ones_like(labels, dtype=torch.bool).index_fill(0, shots, False)

    # Batch norm keeps the checkpoint's statistics: there are too few images for new ones.
    model.eval()
    before = accuracy(model, images[rest], labels[rest])
    fit(model, list(model.head.parameters()), images[shots], labels[shots], steps=options.steps // 2, lr=5e-3)
    head_only = accuracy(model, images[rest], labels[rest])
    fit(model, list(model.parameters()), images[shots], labels[shots], steps=options.steps // 2, lr=5e-4)
    after = accuracy(model, images[rest], labels[rest])
    print(f"Accuracy on new digits: {before:.1%} untrained, {head_only:.1%} by head alone, {after:.1%} fine-tuned")

    if after < MINIMUM_ACCURACY:
        print(f"FAILED: the accuracy is below {MINIMUM_ACCURACY:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
