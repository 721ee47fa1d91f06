"""Measures torch.opencl against PyTorch's CPU back end; ``make bench`` runs it."""
