"""Every operator, module and optimizer of PyTorch's own test databases, in every dtype, against the CPU."""
