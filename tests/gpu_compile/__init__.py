"""Compiles the kernels for some GPUs, to know of them what can be known without one. See docs/gpus.md."""
