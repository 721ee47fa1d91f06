"""``torch.compile`` for opencl: this package makes Inductor, the default backend, write OpenCL C.

It does not slow down ``import torch``: each part is installed when PyTorch imports the module that it extends
(:mod:`torch_opencl._hooks`).
"""
