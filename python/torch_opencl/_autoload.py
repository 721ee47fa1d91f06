"""The entry point that ``import torch`` calls (group ``torch.backends``)."""


def autoload() -> None:
    """Make ``torch.device("opencl")`` work after a bare ``import torch``.

    Importing the package registers it, and Python has imported it by the time this runs. If the user's first
    import is ``torch_opencl``, PyTorch calls this in the middle of that import; the registration follows when
    the import continues. PyTorch skips the call if ``TORCH_DEVICE_BACKEND_AUTOLOAD=0``.
    """
