"""Measures how kernels access global memory, by an Oclgrind plugin: `python tests/coalescing` (docs/gpu_checks.md)."""
