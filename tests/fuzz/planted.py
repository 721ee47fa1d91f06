"""Functions with planted mistakes, which tests/python/tools/test_fuzz.py expects the fuzzer to find."""

import os
import signal
import time

import torch
from torch import Tensor


def add(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b, and on the device 1 more where b is greater than 3."""
    total = a + b
    return total + (b > 3) if total.device.type == "opencl" else total


def refuse(a: Tensor) -> Tensor:
    """Return a, and on the device raise ValueError if it has no elements."""
    if a.device.type == "opencl" and a.numel() == 0:
        raise ValueError("no elements")
    return a.clone()


def crash(a: Tensor) -> Tensor:
    """Return a, and on the device end the process if it has more than 2 rows."""
    if a.device.type == "opencl" and a.shape[0] > 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    return a.clone()


def hang(a: Tensor) -> Tensor:
    """Return a, and on the device never return."""
    while a.device.type == "opencl":
        time.sleep(1)
    return a.clone()


def write(a: Tensor) -> Tensor:
    """Return a + 1, and on the device change a."""
    result = torch.add(a, 1)
    if a.device.type == "opencl":
        a.mul_(2)
    return result
