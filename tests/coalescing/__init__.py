"""Measures how kernels access global memory, with an Oclgrind plugin: `python tests/coalescing` (docs/gpus.md)."""
