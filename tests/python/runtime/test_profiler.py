"""torch.profiler: device time of operators, measured by events in their stream, and of single commands."""

import json

import pytest
import torch
from processes import output_of, run_python
from releases import requires_torch


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


def profiled(call, **options):
    """Profile a call after warming up the device."""
    call()
    torch.opencl.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities, **options) as profile:
        call()
        torch.opencl.synchronize()
    return profile


@requires_torch("2.13", "a tracer of the backend")
def test_kernels_and_copies_have_device_times_and_belong_to_their_operators(device):
    x, host = torch.randn(256, 256, device=device), torch.randn(256, 256)

    def call():
        with torch.profiler.record_function("products"):
            y = (x @ x).tanh() + host.to(device)
        return y.clone()

    profile = profiled(call)
    kernels = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.PrivateUse1]
    assert kernels and all(event.time_range.elapsed_us() >= 0 and event.device_index == 0 for event in kernels)
    averages = {average.key: average for average in profile.key_averages()}
    for name in ("aten::mm", "aten::tanh", "aten::add"):
        assert averages[name].self_device_time_total > 0, name
    assert averages["aten::tanh"].self_device_time_total < averages["aten::mm"].device_time_total * 100
    assert "opencl" in profile.key_averages().table(sort_by="self_device_time_total").lower()


@requires_torch("2.13", "a tracer of the backend")
def test_the_exported_trace_has_a_track_of_the_device_at_the_hosts_time(device, tmp_path):
    x = torch.randn(512, 512, device=device)
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph):
        y = (x @ x).exp()
    profile = profiled(lambda: ((x @ x).sum().item(), graph.replay()))
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name" and event["pid"] == 0}
    assert "opencl:0" in names
    kernels = [event for event in events if event.get("cat") == "kernel"]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    first = min(event["ts"] for event in operators)
    # Microseconds. Device and host clocks are aligned by the time at which the host learns of an event's completion.
    assert all(event["ts"] > first - 20000 and event["dur"] >= 0 for event in kernels)
    assert any(event["args"].get("External id") for event in kernels)
    # Replayed kernels have no operator.
    assert sum(not event["args"].get("External id") for event in kernels) >= 2
    assert all(event["args"]["global size"][0] > 0 for event in kernels)
    # A flow arrow leads to each kernel from the host's call, in the thread and operator that made it.
    starts, ends = (
        {event["id"]: event for event in events if event.get("cat") == "ac2g" and event["ph"] == ph} for ph in "sf"
    )
    assert starts.keys() == ends.keys() and len(starts) >= len(kernels)
    assert all(starts[arrow]["ts"] <= end["ts"] + 20000 and end["pid"] == 0 for arrow, end in ends.items())
    calls = [event for event in events if event.get("cat") == "privateuse1_runtime"]
    assert {event["tid"] for event in calls} == {operators[0]["tid"]} and len(calls) == len(starts)
    assert any(
        call["args"]["External id"] == operator["args"]["External id"]
        and operator["ts"] <= call["ts"] <= operator["ts"] + operator["dur"]
        for call in calls
        for operator in operators
        if call.get("args")
    )
    assert y.shape == (512, 512)


@requires_torch("2.13", "a tracer of the backend")
def test_allocations_are_reported_to_the_profiler(device):
    x = torch.ones(1024, device=device)
    profile = profiled(lambda: x + 1, profile_memory=True)
    averages = {average.key: average for average in profile.key_averages()}
    assert averages["aten::add"].device_memory_usage >= 4096


def test_a_profile_of_the_host_alone_traces_nothing_on_the_device(device):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(3, device=device).add_(1)
    assert all(event.device_type == torch.autograd.DeviceType.CPU for event in profile.events())


@pytest.mark.parametrize("library", ["auto", "host"])
def test_a_matmul_is_dispatched_once_with_any_library(library, tmp_path):
    # Three matmuls: at the first of its size the libraries are measured, each possibly by a call of ATen's CPU
    # function.
    code = """
    import collections, json
    import torch
    from torch.profiler import ProfilerActivity, profile
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        calls = collections.Counter()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Seen.calls[str(function)] += 1
            return function(*args, **(kwargs or {}))

    torch.ones(4, device="opencl").sum().item()
    a, b, c = (torch.randn(*sizes, device="opencl") for sizes in [(600, 520), (520, 300), (1100, 520)])
    torch.opencl.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as trace:
        for _ in range(3):
            a @ b
        torch.opencl.synchronize()
    with Seen():
        c @ b
    averages = {average.key: average.count for average in trace.key_averages()}
    launches = averages.get("clEnqueueNDRangeKernel", 0)
    print(json.dumps([averages["aten::mm"], launches, Seen.calls, torch.ops.torch_opencl.blas_choices(0)]))
    """
    variables = {"TORCH_OPENCL_BLAS": library, "TORCH_OPENCL_CACHE_DIR": str(tmp_path)}
    matmuls, launches, calls, choices = json.loads(output_of(code, **variables).splitlines()[-1])
    assert matmuls == 3 and calls == {"aten.mm.default": 1}
    # The library chosen for matrices of these sizes, if any.
    chosen = [choice for sizes, choice in json.loads(choices).items() if "1x512x256x512" in sizes]
    assert launches == (0 if "host" in (library, *chosen) else 3)
    assert len(chosen) == (library == "auto")
