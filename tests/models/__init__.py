"""Models of widely used libraries, compared with PyTorch's CPU backend: `make models`."""
