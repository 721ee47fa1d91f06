"""Where `make libraries` installs the libraries; a test of one that is not there is skipped."""

import os
import sys
from pathlib import Path

import pytest

# Nothing is downloaded: weights are random.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Counted, not spoken of: what runs on the CPU is asked of each test that cares.
os.environ.setdefault("TORCH_OPENCL_FALLBACK", "silent")
# What is installed elsewhere may be tried too.
LIBRARIES = os.environ.get("LIBRARIES", str(Path(__file__).parents[2] / ".venv-libraries"))
sys.path.append(LIBRARIES)

import torch
import torch_opencl


@pytest.fixture(scope="session")
def device() -> torch.device:
    if not torch_opencl.is_available():
        pytest.skip("there is no OpenCL device")
    return torch.device("opencl")


@pytest.fixture(autouse=True)
def put_back():
    torch.manual_seed(0)
    yield
    torch_opencl.integrations.disable()
