"""``torch.compile`` for opencl: Inductor, the default backend, writes OpenCL C by what is in this package.

Importing torch costs nothing more for it: each part is installed when PyTorch imports the module that it adds to
(:mod:`torch_opencl._hooks`).
"""
