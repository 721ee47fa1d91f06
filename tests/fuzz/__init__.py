"""Random differential cases: the device against PyTorch's CPU backend, with float64 as the judge."""
