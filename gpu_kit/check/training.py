"""``python -m gpu_kit.check.training FILE``: trains a small CNN on images, on the device and on the CPU.

Writes a line of JSON. The images are synthetic: one pattern per class, with noise. Exits with 1 if the loss does not
decrease as on the CPU, or an operator ran on the CPU because it lacks a kernel.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

STEPS, BATCH, CLASSES, SIDE = 200, 64, 10, 16
# The losses of the first steps equal the CPU's except for rounding errors, which grow from step to step; the last ones
# agree like the losses of two trainings. A successful training ends below the part LEARNT of the first loss.
FIRST_STEPS, FIRST_TOLERANCE, LAST_TOLERANCE, LEARNT = 5, 2e-3, 0.1, 0.2


def make_model() -> nn.Module:
    """Return a network of convolutions, batch norm, pooling and linear layers."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * (SIDE // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, CLASSES)),
    )


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return images, (BATCH, 1, SIDE, SIDE), and their labels, for each step; the same every time."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(CLASSES, 1, SIDE, SIDE, generator=generator)
    made = []
    for _ in range(STEPS):
        labels = torch.randint(CLASSES, (BATCH,), generator=generator)
        noise = torch.randn(BATCH, 1, SIDE, SIDE, generator=generator)
        made.append((patterns[labels] + noise, labels))
    return made


def train(device: str) -> dict[str, Any]:
    """Train from the same initial weights on any device.

    Args:
        device: the device.

    Returns:
        The keys ``losses``, of each step, and ``first_step`` and ``other_steps``, their seconds.
    """
    torch.manual_seed(0)
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses, start, first = [], time.perf_counter(), 0.0
    for step, (images, labels) in enumerate(batches()):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if not first:
            loss.item()
            first = time.perf_counter() - start
        # Output shows the parent process that this one makes progress.
        if step % 10 == 0:
            print(f"{device}: step {step}, {time.perf_counter() - start:.1f} s", flush=True)
    losses = torch.stack(losses).tolist()
    return {"losses": losses, "first_step": first, "other_steps": time.perf_counter() - start - first}


def complaint(ours: list[float], theirs: list[float]) -> str:
    """Return what is wrong with the losses, compared with the CPU's; empty if nothing is."""
    for step in range(FIRST_STEPS):
        # Also true for NaN.
        if not abs(ours[step] - theirs[step]) <= FIRST_TOLERANCE * theirs[step]:
            return f"the loss of step {step + 1} is {ours[step]:.5f}, but {theirs[step]:.5f} on the CPU"
    last, cpu_last = (sum(losses[-20:]) / 20 for losses in (ours, theirs))
    if not last <= LEARNT * ours[0]:
        return f"the loss decreased only from {ours[0]:.4f} to {last:.4f} (CPU {cpu_last:.4f})"
    if abs(last - cpu_last) > LAST_TOLERANCE * ours[0]:
        return f"the mean of the last losses is {last:.4f}, but {cpu_last:.4f} on the CPU"
    return ""


def main(path: Path) -> int:
    """Train on both devices, and write the results; return the exit code."""
    ours = train("opencl")
    fallbacks = torch.opencl.fallbacks()
    theirs = train("cpu")
    wrong = complaint(ours["losses"], theirs["losses"])
    if not wrong and fallbacks:
        wrong = f"ran on the CPU without a kernel: {fallbacks}"
    path.write_text(json.dumps({"opencl": ours, "cpu": theirs, "fallbacks": fallbacks, "wrong": wrong}) + "\n")
    print(wrong or "The loss decreases as on the CPU.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
