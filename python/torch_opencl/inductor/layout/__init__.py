"""How work-items share the elements of a kernel: the loops around its statements."""
