"""PyTorch's own test files on the device, in processes that may crash, compared with the CPU."""
