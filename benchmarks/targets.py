"""Targets of each group of rows. Ratios are the CPU's time divided by the device's: more than 1 is faster."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Target:
    """Targets of a group; None without a target.

    Attributes:
        label: the group's name in documents; empty if it is not shown there.
        row: the least ratio of a row.
        mean: the least geometric mean of all rows' ratios.
        share: the least share of the device's limit.
        seconds: the most seconds of a call.
    """

    label: str = ""
    row: float | None = None
    mean: float | None = None
    share: float | None = None
    seconds: float | None = None


# Rows with different targets are in different groups.
TARGETS = {
    "pointwise": Target(label="element-wise, allocating", row=1.0, mean=2.0),
    "pointwise-out": Target(label="element-wise, `out=`", row=0.9, mean=1.1, share=0.85),
    "copy": Target(label="copies and casts, allocating", row=1.0, mean=2.0),
    "copy-out": Target(label="copies and casts, `out=`", row=0.9, mean=1.1, share=0.85),
    "reduction": Target(label="reductions", row=0.9, mean=1.1, share=0.85),
    # On a CPU, the CPU's library computes them.
    "fft": Target(label="Fourier transforms", row=0.9, mean=1.0),
    "softmax": Target(label="softmax", row=1.0, mean=1.3, share=0.70),
    "norm": Target(label="norms", row=1.0, mean=1.3, share=0.70),
    # The share of a matmul depends on its size: benchmarks/cases/matrix.py.
    "gemm": Target(label="matmul, f32", row=1.0, mean=1.5),
    "gemm-16": Target(label="matmul, bf16 and f16", row=0.9, mean=1.0),
    "gemm-f64": Target(label="matmul, f64", row=0.9, mean=1.0),
    "conv": Target(label="convolutions", row=0.8, mean=1.0),
    "conv-backward": Target(label="their gradients", row=0.8, mean=1.0),
    "sparse": Target(label="sparse matmuls", row=0.9, mean=1.0),
    "layer": Target(label="other layers", row=0.9, mean=1.0),
    "pooling": Target(label="pooling and interpolation", row=1.0, mean=1.0),
    "indexing": Target(label="indexing", row=1.0, mean=1.0),
    "sorting": Target(label="sorting", row=1.0, mean=1.0),
    "attention": Target(label="attention", row=1.0, mean=1.0),
    "model": Target(label="whole models, large", row=1.0, mean=1.2),
    "enqueue": Target(seconds=5e-6),
    # Dominated by the driver's round trip and the host's memory; measured without a target.
    "round-trip": Target(),
    "host": Target(),
}


@dataclass(frozen=True, kw_only=True)
class CompiledTarget:
    """Targets of a group of compiled rows; None without a target.

    Attributes:
        eager: the least ratio of a row to eager mode on the same device; a row may override it.
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
