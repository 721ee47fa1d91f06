"""What graphs become: operators that are kernels, are fused, or run as in eager mode."""
