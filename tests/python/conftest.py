"""What all tests share: the device, the seed, and the refusal to pass where there is nothing to test."""

import inspect
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
# Large tensors run specialised kernels and small ones generic kernels, every time. test_specialization.py tests the
# default, where it is a matter of time.
os.environ.setdefault("TORCH_OPENCL_SPECIALIZE", "eager")

import pytest
import torch


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


# As a test's name or its function says that it asks for float64.
DOUBLE = re.compile(r"float64|complex128|double\b|f64|c128|FLOATING|DTYPES|INTEGRAL")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Skip what asks for float64 where the device has none, and says so; an op of other dtypes must not need it."""
    try:
        return (yield)
    except NotImplementedError as error:
        properties = torch.opencl.get_device_properties()
        is_refused = not properties.fp64 and "does not compute in float64" in str(error)
        # Those of test_without_fp64.py know which devices they are for.
        asks = item.path.name != "test_without_fp64.py" and DOUBLE.search(item.name + inspect.getsource(item.function))
        if not (is_refused and asks):
            raise
        pytest.skip(f"asks for float64, in which {properties.name} does not compute")


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
def side_stream(device: torch.device):
    """A stream that is not the default one, idle at the end."""
    stream = torch.opencl.Stream(device)
    yield stream
    stream.synchronize()
