"""Compiles the kernels for some GPUs, to check what can be checked without a GPU. See docs/gpu_checks.md."""
