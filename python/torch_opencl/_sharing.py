"""Sends tensors between processes: in queues, pipes, arguments and the batches of a ``DataLoader``.

The memory of an OpenCL device belongs to one process, so a tensor is sent as a copy: the sender copies its
storage to shared host memory, and the receiver copies that to its own device. Tensors that are views of one
storage and are sent together still share one.
"""

from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing.reductions import reduce_storage


def register() -> None:
    """Make ``torch.multiprocessing`` send OpenCL storages, and with them tensors, parameters and modules."""
    ForkingPickler.register(torch.UntypedStorage, _reduce)


def _reduce(storage: torch.UntypedStorage) -> tuple:
    if storage.device.type != "opencl":
        return reduce_storage(storage)
    return _rebuild, (storage.cpu(), storage.device.index)


def _rebuild(shared: torch.UntypedStorage, index: int) -> torch.UntypedStorage:
    storage = torch.UntypedStorage(shared.nbytes(), device=torch.device("opencl", index))
    return storage.copy_(shared, non_blocking=False)
