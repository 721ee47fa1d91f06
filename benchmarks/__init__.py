"""Measures torch.opencl against PyTorch's CPU backend; ``make bench`` runs it."""
