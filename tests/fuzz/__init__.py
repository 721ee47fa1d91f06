"""Random differential cases: the device against PyTorch's CPU back end, with float64 as the judge."""
