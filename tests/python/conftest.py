"""Shared by all tests: the device, the seed, and the refusal to pass where there is nothing to test."""

import os
import re

# Idle CPU threads of PyTorch must not take the processor from an OpenCL driver that runs on it; and with
# several test processes (pytest -n) each gets its part of the cores. Before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, share)))
# Large products by our own kernels: what the tests are for. test_blas.py tests the other libraries and the choice.
os.environ.setdefault("TORCH_OPENCL_BLAS", "opencl")
# Small calls by our own kernels, too, which is what GPUs run. test_small_calls.py and test_small_layers.py test the
# default.
os.environ.setdefault("TORCH_OPENCL_SMALL_CALLS", "kernels")
# Large tensors run specialised kernels and small ones generic kernels, every time. test_specialization.py tests the
# default, where it is a matter of time.
os.environ.setdefault("TORCH_OPENCL_SPECIALIZE", "eager")

import pytest
import torch
from float64 import DOUBLES, has_fp64

REFUSAL = re.compile(r"does not compute in torch\.(float64|complex128)")


def pytest_configure(config: pytest.Config) -> None:
    """Fail the whole run where there is no device: skipped tests would look like passed ones."""
    if not (hasattr(torch, "opencl") and torch.opencl.is_available()):
        raise pytest.UsageError(
            "The tests need an OpenCL device. Run `make setup build`; "
            "`python -m torch_opencl.info` says what is missing."
        )


def pytest_report_header() -> str:
    """Name the device in the report."""
    return f"opencl: {torch.opencl.get_device_properties()}"


def needs_float64(item: pytest.Item) -> bool:
    """Return True if a test says that it computes in float64: by a parameter that is such a dtype, or by its mark."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    is_double = any(isinstance(value, torch.dtype) and value in DOUBLES for value in parameters)
    return is_double or item.get_closest_marker("needs_float64") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Skip what says that it computes in float64, if a device without it refuses; what is not refused must be right."""
    try:
        return (yield)
    except NotImplementedError as error:
        if has_fp64() or not needs_float64(item) or not REFUSAL.search(str(error)):
            raise
        pytest.skip(f"needs float64: {str(error).splitlines()[0]}")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The device under test."""
    return torch.device("opencl", torch.opencl.current_device())


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Start every test from the same random numbers, on the CPU and on the devices."""
    torch.manual_seed(0)


@pytest.fixture
def no_fallback():
    """Fail the test if an operator of it ran on the CPU for want of a kernel."""
    torch.opencl.reset_fallbacks()
    yield
    assert torch.opencl.fallbacks() == {}


@pytest.fixture
def small_calls_on_host():
    """Small calls as users have them, by the host where the device is the CPU, which has nothing to do at first."""
    before = torch.backends.opencl.small_calls()
    torch.backends.opencl.small_calls("host")
    torch.opencl.synchronize()
    yield
    torch.backends.opencl.small_calls(before)


@pytest.fixture
def side_stream(device: torch.device):
    """A stream that is not the default one, idle at the end."""
    stream = torch.opencl.Stream(device)
    yield stream
    stream.synchronize()
