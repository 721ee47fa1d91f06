"""Models of the libraries that people use, compared with PyTorch's CPU backend: `make models`."""
