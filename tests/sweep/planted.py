"""Planted mistakes, for the tests of this tool."""

import os
import time

import torch


def right(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def wrong(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.device.type == "cpu" else x + 2


def error(x: torch.Tensor) -> torch.Tensor:
    if x.device.type != "cpu":
        raise ValueError("planted")
    return x


def unsupported(x: torch.Tensor) -> torch.Tensor:
    if x.device.type != "cpu":
        raise NotImplementedError("planted")
    return x


def crash(x: torch.Tensor) -> torch.Tensor:
    if x.device.type != "cpu":
        os.abort()
    return x


def cpu_crash(x: torch.Tensor) -> torch.Tensor:
    if x.device.type == "cpu":
        os.abort()
    return x


def hang(x: torch.Tensor) -> torch.Tensor:
    if x.device.type != "cpu":
        time.sleep(1000)
    return x


def random(x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(x)


def not_on_cpu(x: torch.Tensor) -> torch.Tensor:
    if x.device.type == "cpu":
        raise RuntimeError("planted")
    return x


PLANTED = {
    function.__name__: function
    for function in (right, wrong, error, unsupported, crash, cpu_crash, hang, random, not_on_cpu)
}
