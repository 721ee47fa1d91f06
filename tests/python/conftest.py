"""Shared by all tests: the device, the seed, and an error if there is no device."""

import os
import random
import re

# Idle CPU threads of PyTorch must not take cores from an OpenCL driver that runs on the CPU; with several test
# processes (pytest -n) each gets its share of the cores. Set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, share)))
# Large matmuls by our own kernels, which are under test. test_blas.py tests the other libraries and the choice.
os.environ.setdefault("TORCH_OPENCL_BLAS", "opencl")
# Small calls also by our own kernels, as on GPUs. test_small_calls.py and test_small_layers.py test the default.
os.environ.setdefault("TORCH_OPENCL_SMALL_CALLS", "kernels")
# Large tensors always run specialised kernels and small ones generic kernels. test_specialization.py tests the default,
# where that depends on timing.
os.environ.setdefault("TORCH_OPENCL_SPECIALIZE", "eager")

import pytest
import torch
from float64 import DOUBLES, has_fp64

REFUSAL = re.compile(r"does not compute in torch\.(float64|complex128)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that divide the tests into a sample and the rest."""
    group = parser.getgroup("sample")
    group.addoption("--sample", type=int, metavar="N", help="run at most N cases of each test, and none marked slow")
    group.addoption("--rest", type=int, metavar="N", help="run only what --sample N leaves out")


def sample_of(items: list[pytest.Item], count: int) -> set[pytest.Item]:
    """Choose the tests of a sample, always the same ones.

    Args:
        items: all tests.
        count: how many parameter sets of each test function to choose at most.

    Returns:
        The chosen tests. Tests marked slow are not chosen.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = set()
    for name, of_test in cases.items():
        chosen.update(random.Random(name).sample(of_test, min(count, len(of_test))))
    return chosen


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests that --sample or --rest asks for, of those that -k and -m have chosen."""
    sample, rest = config.getoption("--sample"), config.getoption("--rest")
    if sample is None and rest is None:
        return
    chosen = sample_of(items, sample if sample is not None else rest)
    kept = [item for item in items if (item in chosen) == (sample is not None)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def pytest_configure(config: pytest.Config) -> None:
    """Fail the whole run if there is no device: skipped tests would look like passed ones."""
    if not (hasattr(torch, "opencl") and torch.opencl.is_available()):
        raise pytest.UsageError(
            "The tests need an OpenCL device. Run `make setup build`; "
            "`python -m torch_opencl.info` says what is missing."
        )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the device in the report, and what a sample is."""
    lines = [f"opencl: {torch.opencl.get_device_properties()}"]
    count = config.getoption("--sample")
    if count is not None:
        lines.append(f"a sample: at most {count} cases of each test, none marked slow; `make test-all` runs all tests")
    return lines


def needs_float64(item: pytest.Item) -> bool:
    """Return True if a test declares that it needs float64: by such a dtype as parameter, or by its marker."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    is_double = any(isinstance(value, torch.dtype) and value in DOUBLES for value in parameters)
    return is_double or item.get_closest_marker("needs_float64") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Skip a test that declares to need float64 if a device without it refuses; otherwise it must pass."""
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
    """Seed every test equally, on the CPU and on the devices."""
    torch.manual_seed(0)


@pytest.fixture
def no_fallback():
    """Fail the test if one of its operators ran on the CPU because it has no kernel."""
    torch.opencl.reset_fallbacks()
    yield
    assert torch.opencl.fallbacks() == {}


@pytest.fixture
def small_calls_on_host():
    """Small calls by default: by the host if the device is the CPU and has no pending work, as at the start."""
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
