"""The entry point that ``import torch`` calls (group ``torch.backends``)."""


def autoload() -> None:
    """Make ``torch.device("opencl")`` work after a bare ``import torch``.

    Importing the package is what registers it, and Python has done that by the time this runs. Where the
    user's first import is ``torch_opencl``, PyTorch calls this in the middle of it; the registration
    then follows when that import goes on. PyTorch itself skips the call where
    ``TORCH_DEVICE_BACKEND_AUTOLOAD=0``.
    """
