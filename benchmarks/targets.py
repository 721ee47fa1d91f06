"""Targets of each group of rows. Ratios are the CPU's time over the device's: more than 1 is faster."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Target:
    """Targets of a group; None where there is none.

    Attributes:
        row: the least ratio of a row.
        mean: the least geometric mean of all rows' ratios.
        share: the least share of the device's limit.
        seconds: the most that a call may take.
    """

    row: float | None = None
    mean: float | None = None
    share: float | None = None
    seconds: float | None = None


# A group of its own wherever another target holds.
TARGETS = {
    "pointwise": Target(row=1.0, mean=2.0),
    "pointwise-out": Target(row=0.9, mean=1.1, share=0.85),
    "copy": Target(row=1.0, mean=2.0),
    "copy-out": Target(row=0.9, mean=1.1, share=0.85),
    "reduction": Target(row=0.9, mean=1.1, share=0.85),
    # On a CPU its own library computes them.
    "fft": Target(row=0.9, mean=1.0),
    "softmax": Target(row=1.0, mean=1.3, share=0.70),
    "norm": Target(row=1.0, mean=1.3, share=0.70),
    # The share of a matmul depends on its size: benchmarks/cases/matrix.py.
    "gemm": Target(row=1.0, mean=1.5),
    "gemm-16": Target(row=0.9, mean=1.0),
    "gemm-f64": Target(row=0.9, mean=1.0),
    "conv": Target(row=0.8, mean=1.0),
    "conv-backward": Target(row=0.8, mean=1.0),
    "sparse": Target(row=0.9, mean=1.0),
    "layer": Target(row=0.9, mean=1.0),
    "pooling": Target(row=1.0, mean=1.0),
    "indexing": Target(row=1.0, mean=1.0),
    "sorting": Target(row=1.0, mean=1.0),
    "attention": Target(row=1.0, mean=1.0),
    "model": Target(row=1.0, mean=1.2),
    "enqueue": Target(seconds=5e-6),
    # A driver's round trip and the host's memory, which the backend can only add to: figures to watch.
    "round-trip": Target(),
    "host": Target(),
}


@dataclass(frozen=True, kw_only=True)
class CompiledTarget:
    """Targets of a group of compiled rows; None where there is none.

    Attributes:
        eager: the least ratio of a row to eager mode on the same device; a row may ask for another one.
        inductor: the least ratio of a row to Inductor's C++ on the CPU.
        inductor_mean: the least geometric mean of these ratios.
    """

    eager: float
    inductor: float | None = None
    inductor_mean: float | None = None


COMPILED = {
    "compiled-chain": CompiledTarget(eager=2.0, inductor=1.0),
    "compiled-norm": CompiledTarget(eager=0.95, inductor_mean=1.3),
    "compiled-sum": CompiledTarget(eager=0.95, inductor_mean=1.0),
    "compiled-model": CompiledTarget(eager=1.1, inductor_mean=1.2),
}
