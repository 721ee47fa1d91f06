"""Uses the installation folder of `make libraries`; tests of missing libraries are skipped."""

import os
import sys

import pytest
from groups import LIBRARIES

# Nothing is downloaded: weights are random.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# No warnings for fallbacks: tests that care check the counts.
os.environ.setdefault("TORCH_OPENCL_FALLBACK", "silent")
sys.path.append(LIBRARIES)

import torch
import torch_opencl


@pytest.fixture(scope="session")
def device() -> torch.device:
    assert torch_opencl.is_available(), (
        "these tests need an OpenCL device: python -m torch_opencl.info says what is missing"
    )
    return torch.device("opencl")


@pytest.fixture(autouse=True)
def put_back():
    torch.manual_seed(0)
    yield
    torch_opencl.integrations.disable()
