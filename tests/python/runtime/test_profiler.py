"""torch.profiler: the time of ops on the device, between marks in its stream."""

import pytest
import torch
from processes import run_python


@pytest.mark.filterwarnings("ignore")
def test_ops_have_time_on_the_device(device):
    x = torch.randn(256, 256, device=device)
    profiler = torch.autograd.profiler
    with profiler.profile(use_device="opencl") as profile, profiler.record_function("products"):
        for _ in range(3):
            x = (x @ x).tanh()
    averages = {average.key: average for average in profile.key_averages()}
    assert averages["aten::mm"].count == averages["aten::tanh"].count == 3
    assert averages["aten::mm"].device_time_total > 0
    assert averages["products"].device_time_total >= averages["aten::mm"].device_time_total
    assert "opencl time total" in profile.key_averages().table(sort_by="device_time_total").lower()


def test_nothing_is_written_to_the_error_stream():
    code = """
        import torch
        with torch.autograd.profiler.profile(use_device="opencl"):
            (torch.ones(3, device="opencl") + 1).sum().item()
    """
    done = run_python(code)
    assert done.returncode == 0
    assert "Exception" not in done.stderr and "not enabled" not in done.stderr
