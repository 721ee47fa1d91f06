"""Signals while the host waits for the device: Ctrl-C is handled at once, and the process is usable afterwards."""

import json
from pathlib import Path

import pytest
import torch
from processes import output_of

CASES = Path(__file__).with_name("interrupt_cases.py")
GPU = {"TORCH_OPENCL_DEVICE_CLASS": "gpu", "TORCH_OPENCL_SMALL_CALLS": "kernels"}
# Seconds from the signal to the exception. Each wait takes 1.2 s, and the signal comes after 0.15 s.
LIMIT = 0.6


def run_cases(*arguments: str, **environment: str) -> dict[str, dict]:
    """Run cases in a separate process: a signal is for a whole process."""
    code = f"import runpy; runpy.run_path({str(CASES)!r}, run_name='__main__')"
    return json.loads(output_of(code, *arguments, **environment).splitlines()[-1])


def check(results: dict[str, dict], exception: str) -> None:
    """Check the exception, its delay, and the results computed later."""
    for name in [name for name in results if name.startswith("a handler")]:
        assert results.pop(name) == {"raised": "nothing", "seconds": None, "is_right": True}, name
    assert {name: (found["raised"], found["is_right"]) for name, found in results.items()} == dict.fromkeys(
        results, (exception, True)
    )
    assert {name: found["seconds"] for name, found in results.items() if found["seconds"] > LIMIT} == {}


@pytest.mark.slow
def test_a_signal_ends_every_wait() -> None:
    results = run_cases()
    assert len(results) > 18
    check(results, "KeyboardInterrupt")


@pytest.mark.parametrize("environment", [GPU, {"TORCH_OPENCL_SMALL_CALLS": "host", "TORCH_OPENCL_BLAS": "auto"}])
def test_a_signal_ends_waits_of_other_kernels(environment: dict[str, str]) -> None:
    names = ["item", "cpu, large", "to device, large", "computed by the host", "a handler that returns"]
    check(run_cases(*names, **environment), "KeyboardInterrupt")


def test_the_exception_of_the_users_handler_arrives() -> None:
    check(run_cases("alarm", "item", "synchronize", "compiling", "a handler that returns"), "Alarm")


def test_waits_last_while_signals_are_not_watched() -> None:
    # As at the end of a process; it also shows that the other tests would fail.
    found = run_cases("unwatched", "item")["item"]
    assert found["is_right"] and found["seconds"] > LIMIT


# In a separate process: if other code has used the queue's handle, only the number of commands is limited.
ENQUEUE = """
import time, torch
spin = torch.opencl.compile_kernel(
    "__kernel void spin(__global float *x, const long count) { float v = x[0];"
    "for (long i = 0; i < count; i++) v = v * 0.9999f + 0.5f; x[0] = v; }",
    "spin",
)
x = torch.zeros(1, device="opencl")
spin(x, 1, elements=1)
steps, total, left = 1 << 22, 0.0, 0.0
while total < 4:
    # Quick work first: the kernels after it are slower than the throttle expects.
    for _ in range(2000):
        x.add_(1)
    torch.opencl.synchronize()
    start = time.perf_counter()
    for _ in range(40):
        spin(x, steps, elements=1)
    enqueued = time.perf_counter()
    torch.opencl.synchronize()
    total, left = time.perf_counter() - start, time.perf_counter() - enqueued
    steps *= 4
print(total, left)
"""


@pytest.mark.slow
def test_pending_work_of_a_cpu_is_limited_to_about_a_second(device: torch.device) -> None:
    if torch.opencl.get_device_properties(device).type != "cpu":
        pytest.skip("queues of GPUs are bounded by the number of commands")
    total, left = map(float, output_of(ENQUEUE).split())
    # Five or six kernels of 40, or a second of quick kernels; and the machine may be busy.
    assert left < total / 2
