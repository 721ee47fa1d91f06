"""Measures how kernels touch global memory, by a plugin of Oclgrind: `python tests/coalescing`; see CONTRIBUTING.md."""
