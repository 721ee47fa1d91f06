"""Statements of kernels, collected from Inductor's loop bodies, and their source in OpenCL C at a vector width."""
