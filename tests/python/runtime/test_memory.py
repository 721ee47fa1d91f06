"""Memory: statistics, the cache, limits, and errors at the limits."""

import gc
import pickle
import signal

import pytest
import torch
from processes import run_python
from releases import requires_torch
from threads import in_threads

MIB = 1 << 20


@pytest.fixture(autouse=True)
def empty(device):
    """Start with an empty cache, so that figures count the test alone."""
    gc.collect()  # an exception caught in an earlier test holds its tensors in a cycle
    torch.opencl.synchronize()
    torch.opencl.empty_cache()
    torch.opencl.reset_peak_memory_stats()


@pytest.fixture
def limit(device):
    """Sets how many more bytes the process may allocate."""

    def set_limit(more: int) -> None:
        total = torch.opencl.get_device_properties(device).total_memory
        torch.opencl.set_per_process_memory_fraction((torch.opencl.memory_reserved() + more) / total)

    yield set_limit
    torch.opencl.set_per_process_memory_fraction(1.0)


def test_figures_follow_tensors(device):
    before = torch.opencl.memory_allocated()
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device=device)
    assert torch.opencl.memory_allocated() - before >= 3 * MIB
    assert torch.opencl.memory_reserved() >= torch.opencl.memory_allocated()
    del tensor
    assert torch.opencl.memory_allocated() == before
    assert torch.opencl.max_memory_allocated() - before >= 3 * MIB
    torch.opencl.reset_peak_memory_stats()
    assert torch.opencl.max_memory_allocated() == before


def test_views_share_memory(device):
    tensor = torch.empty(1024, device=device)
    before = torch.opencl.memory_allocated()
    view = tensor[512:].view(2, 256).t()
    assert torch.opencl.memory_allocated() == before
    assert view.data_ptr() == tensor.data_ptr() + 512 * 4


# Each writes into a vector of floats only.
WRITES = {
    "add_": lambda y: y.add_(1),
    "fill_": lambda y: y.fill_(3),
    "uniform_": lambda y: y.uniform_(),
    "cumsum_": lambda y: y.cumsum_(0),
    "copy_": lambda y: y.copy_(torch.ones_like(y)),
    "copy_ from the host": lambda y: y.copy_(torch.ones(y.shape)),
    "index_fill_": lambda y: y.index_fill_(0, torch.tensor([0], device=y.device), 9),
    "addmm_": lambda y: y.view(1, -1).addmm_(y.new_ones(1, 1), y.new_ones(1, len(y))),
    "_foreach_add_": lambda y: torch._foreach_add_([y], 1),
    "_foreach_mul_ of several": lambda y: torch._foreach_mul_([y, torch.ones_like(y)], [y, y]),
    "mm with out=": lambda y: torch.mm(y.new_ones(1, 1), y.new_ones(1, len(y)), out=y.view(1, -1)),
    "inv with out=": lambda y: torch.linalg.inv(torch.eye(8, device=y.device), out=y.view(8, 8)),
    "running statistics": lambda y: torch.nn.functional.batch_norm(
        torch.randn(4, len(y), device=y.device), y, y + 1, training=True
    ),
    "topk with out=": lambda y: torch.topk(
        y.new_ones(len(y)), len(y), out=(y, torch.empty(len(y), dtype=torch.int64, device=y.device))
    ),
}


KERNEL = """
__kernel void twice(__global float *x, long n) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) x[i] *= 2;
}
"""


@pytest.mark.parametrize("small_calls", ["host", "kernels"])
@pytest.mark.parametrize("write", WRITES)
def test_writes_to_copy_on_write_tensors_copy_them(device, write, small_calls):
    before = torch.backends.opencl.small_calls()
    torch.backends.opencl.small_calls(small_calls)
    x = torch.full((64,), 0.5, device=device)
    lazy = torch._lazy_clone(x)
    WRITES[write](lazy)
    torch.backends.opencl.small_calls(before)
    assert not torch._C._is_cow_tensor(lazy)
    assert x.tolist() == [0.5] * 64 != lazy.tolist()


def test_user_kernels_copy_copy_on_write_tensors(device):
    x = torch.full((64,), 0.5, device=device)
    lazy = torch._lazy_clone(x)
    torch.opencl.compile_kernel(KERNEL, "twice")(lazy, len(lazy), global_size=64)
    assert x.tolist() == [0.5] * 64
    assert lazy.tolist() == [1.0] * 64


def test_empty_copy_on_write_tensors(device):
    x = torch.empty(0, device=device)
    assert torch._lazy_clone(x).acos_().shape == x.shape


def test_freed_memory_is_cached_and_used_again(device):
    tensor = torch.empty(4 * MIB, dtype=torch.uint8, device=device)
    address, reserved = tensor.data_ptr(), torch.opencl.memory_reserved()
    del tensor
    assert torch.opencl.memory_reserved() == reserved
    assert torch.empty(4 * MIB, dtype=torch.uint8, device=device).data_ptr() == address


def test_empty_cache_releases_unused_memory(device):
    kept = torch.arange(1000, device=device)
    freed = torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    reserved = torch.opencl.memory_reserved()
    del freed
    torch.opencl.empty_cache()
    assert torch.opencl.memory_reserved() <= reserved - 64 * MIB
    assert kept.cpu().equal(torch.arange(1000))


def test_stats_have_the_names_that_pytorch_gives_them(device):
    stats = torch.opencl.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.opencl.memory_allocated()
    assert stats == dict(sorted(stats.items()))
    torch.opencl.reset_accumulated_memory_stats()
    torch.empty(8, device=device)
    assert torch.opencl.memory_stats()["allocation.all.allocated"] == 1
    free, total = torch.opencl.mem_get_info()
    assert total - free == torch.opencl.memory_reserved()


def test_stats_as_a_tree_and_as_a_table(device):
    kept = torch.empty(3 * MIB, dtype=torch.uint8, device=device)
    stats = torch.opencl.memory_stats()
    tree = torch.opencl.memory_stats_as_nested_dict()
    assert tree["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]
    assert tree["num_ooms"] == stats["num_ooms"]
    table = torch.opencl.memory_summary()
    assert str(device) in table and "held" in table and "free blocks" in table
    assert len(torch.opencl.memory_summary(device, abbreviated=True).splitlines()) < len(table.splitlines())
    del kept
    torch.opencl.reset_max_memory_allocated()
    assert torch.opencl.max_memory_allocated() == torch.opencl.memory_allocated()


def test_a_snapshot_shows_every_buffer_and_its_blocks(device, side_stream):
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device=device)
    with torch.opencl.stream(side_stream):
        other = torch.empty(1000, dtype=torch.uint8, device=device)
    segments = torch.opencl.memory_snapshot()
    assert sum(segment["total_size"] for segment in segments) == torch.opencl.memory_reserved()
    assert sum(segment["allocated_size"] for segment in segments) == torch.opencl.memory_allocated()
    blocks = {block["address"]: (block, segment) for segment in segments for block in segment["blocks"]}
    block, segment = blocks[tensor.data_ptr()]
    assert (block["state"], block["requested_size"]) == ("active_allocated", 3 * MIB)
    assert (segment["device"], segment["stream"], segment["segment_type"]) == (device.index, 0, "large")
    assert blocks[other.data_ptr()][1]["stream"] == side_stream.stream_id
    for segment in segments:
        end = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == end
            end += block["size"]
        assert end == segment["address"] + segment["total_size"]
    address = tensor.data_ptr()
    del tensor
    freed = [block for segment in torch.opencl.memory_snapshot() for block in segment["blocks"]]
    assert {block["state"] for block in freed if block["address"] <= address < block["address"] + block["size"]} == {
        "inactive"
    }


def test_figures_before_the_first_use():
    code = """
        import torch
        assert torch.opencl.memory_allocated() == torch.opencl.memory_reserved(0) == 0
        assert torch.opencl.memory_stats_as_nested_dict() == {} and torch.opencl.memory_snapshot() == []
        assert not torch.opencl.is_initialized()
        torch.opencl.max_memory_allocated(99)
    """
    done = run_python(code)
    assert done.returncode == 1
    assert "RuntimeError: Invalid device id 99" in done.stderr


def test_memory_used_on_another_stream_is_not_reused_before_that_is_done(device, side_stream):
    tensor = torch.full((MIB,), 3.0, device=device)
    address = tensor.data_ptr()
    side_stream.wait_stream(torch.opencl.current_stream())
    with torch.opencl.stream(side_stream):
        total = tensor.sum()
    # A view whose elements share memory refers to the same block.
    tensor[:1].expand(4).record_stream(side_stream)
    del tensor
    # The sum, finished or not, must not see the values written next.
    torch.full((MIB,), 7.0, device=device)
    side_stream.synchronize()
    assert total.item() == 3 * MIB
    assert torch.empty(MIB, device=device).data_ptr() == address


def test_out_of_memory_is_the_error_of_pytorch_with_the_figures(device, limit):
    limit(32 * MIB)
    torch.opencl.reset_accumulated_memory_stats()
    with pytest.raises(torch.OutOfMemoryError) as raised:
        torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    message = str(raised.value)
    assert "Tried to allocate 64.00 MiB" in message
    assert torch.opencl.get_device_name() in message
    assert torch.opencl.memory_stats()["num_ooms"] == 1
    assert torch.opencl.OutOfMemoryError is torch.OutOfMemoryError


def test_allocation_works_after_out_of_memory(device, limit):
    kept = torch.arange(100.0, device=device)
    limit(32 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(64 * MIB, dtype=torch.uint8, device=device)
    assert (kept + 1).cpu().equal(torch.arange(100.0) + 1)
    torch.opencl.set_per_process_memory_fraction(1.0)
    assert torch.zeros(64 * MIB, dtype=torch.uint8, device=device)[-1].item() == 0


def test_cached_memory_is_released_before_giving_up(device, limit):
    limit(48 * MIB)
    torch.empty(40 * MIB, dtype=torch.uint8, device=device)
    retries = torch.opencl.memory_stats()["num_alloc_retries"]
    torch.empty(44 * MIB, dtype=torch.uint8, device=device)
    assert torch.opencl.memory_stats()["num_alloc_retries"] == retries + 1


def test_the_limit_can_be_read_and_must_be_a_fraction(device):
    assert torch.opencl.get_per_process_memory_fraction() == 1.0
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="Allowed range: 0 to 1"):
            torch.opencl.set_per_process_memory_fraction(wrong)


def test_an_allocation_over_the_memory_of_the_device_names_the_limit(device):
    over = torch.opencl.get_device_properties().total_memory + 1
    with pytest.raises(torch.OutOfMemoryError, match=r"CL_DEVICE_MAX_MEM_ALLOC_SIZE.*split the tensor.*Driver:"):
        torch.empty(over, dtype=torch.uint8, device=device)


def test_an_allocation_over_the_reported_limit_is_left_to_the_driver(device):
    over = torch.opencl.get_device_properties().max_alloc_bytes + 1
    try:
        tensor = torch.empty(over, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError as error:
        assert any(word in str(error) for word in ("clCreateBuffer", "clSVMAlloc", "budget"))
    else:
        tensor[-1] = 7
        assert tensor[-1].item() == 7


def test_a_size_that_overflows_is_refused(device):
    with pytest.raises(RuntimeError):
        torch.empty(2**40, 2**40, device=device)


def test_tensors_of_size_zero_take_no_memory(device):
    before = torch.opencl.memory_allocated()
    tensor = torch.empty(0, 5, device=device)
    assert tensor.data_ptr() == 0
    assert torch.opencl.memory_allocated() == before
    assert (tensor + 1).shape == (0, 5)
    assert tensor.cpu().shape == (0, 5)
    assert torch.ones(3, 0, device=device).sum().item() == 0
    assert tensor.clone().resize_(4).fill_(2).cpu().tolist() == [2, 2, 2, 2]


def test_threads_allocate_and_free_at_once(device):
    def work(seed: int) -> None:
        for size in range(1, 40):
            value = seed * 100 + size
            tensor = torch.full((size * 997,), value, device=device, dtype=torch.int64)
            assert tensor.sum().item() == value * size * 997

    before = torch.opencl.memory_allocated()
    in_threads(4, work)
    assert torch.opencl.memory_allocated() == before


def pinned(*shape, **options):
    """Make an uninitialised pinned tensor. With a CUDA device, a factory's ``pin_memory`` pins for CUDA."""
    if torch.cuda.is_available():
        return torch.empty(*shape, **options).pin_memory()
    return torch.empty(*shape, **options, pin_memory=True)


def test_pinned_memory_is_recognised_and_reused(device):
    tensor = pinned(1000)
    assert tensor.is_pinned() and tensor[10:].is_pinned()
    assert not torch.empty(1000).is_pinned()
    copy = torch.arange(5).pin_memory()
    assert copy.is_pinned()
    address = tensor.data_ptr()
    del tensor
    assert pinned(1000).data_ptr() == address
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(1, device=device, pin_memory=True)


def test_figures_follow_pinned_memory(device):
    torch.opencl.reset_accumulated_host_memory_stats()
    before = torch.opencl.host_memory_stats()
    tensor = pinned(123457, dtype=torch.uint8)
    stats = torch.opencl.host_memory_stats()
    assert stats["active_requests.current"] == before["active_requests.current"] + 1
    assert stats["active_bytes.allocated"] == 131072 and stats["active_requests.allocated"] == 1
    assert stats["allocated_bytes.current"] >= stats["active_bytes.current"] >= 131072
    del tensor
    torch.opencl.reset_peak_host_memory_stats()
    after = torch.opencl.host_memory_stats()
    assert after["active_bytes.current"] == after["active_bytes.peak"] == before["active_bytes.current"]
    assert after["allocated_bytes.current"] == stats["allocated_bytes.current"]
    torch.opencl.ipc_collect()


def test_a_stray_host_read_of_device_memory_faults():
    done = run_python("import ctypes, torch; ctypes.string_at(torch.ones(4, device='opencl').data_ptr(), 4)")
    assert done.returncode == -signal.SIGSEGV


@requires_torch("2.12", "torch.accelerator.empty_host_cache")
def test_unused_pinned_memory_is_released(device):
    kept = torch.arange(1000.0).pin_memory()
    torch.empty(1 << 20).pin_memory()
    before = torch.opencl.host_memory_stats()
    torch.accelerator.empty_host_cache()
    after = torch.opencl.host_memory_stats()
    assert after["active_bytes.current"] == before["active_bytes.current"] >= 4000
    assert before["allocated_bytes.current"] - after["allocated_bytes.current"] >= 4 << 20
    assert after["num_host_free"] > before["num_host_free"]
    assert kept.to(device, non_blocking=True).sum().item() == 499500
    again = torch.ones(1 << 20).pin_memory()
    assert again.is_pinned() and again.to(device).sum().item() == 1 << 20


def test_snapshots_have_the_format_of_pytorchs_visualiser(device, tmp_path):
    from torch.cuda import _memory_viz

    kept = torch.ones(3 << 20, device=device)
    torch.opencl.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert set(snapshot) == {"segments", "device_traces", "allocator_settings"}
    in_use = sum(segment["allocated_size"] for segment in snapshot["segments"])
    assert in_use == torch.opencl.memory_allocated() >= kept.nbytes
    assert "12.0MiB" in _memory_viz.segsum(snapshot)
    assert "<html" in _memory_viz.segment_plot(snapshot)
    assert torch.opencl.memory._snapshot(device)["segments"] == torch.opencl.memory_snapshot()


def test_the_history_of_allocations_names_the_lines_that_made_them(device):
    from torch.cuda import _memory_viz

    torch.opencl.memory._record_memory_history(max_entries=100, clear_history=True)
    try:
        tensor = torch.ones(1 << 20, device=device)
        address = tensor.data_ptr()
        del tensor
    finally:
        torch.opencl.memory._record_memory_history(enabled=None)
    torch.ones(3, device=device)
    snapshot = torch.opencl.memory._snapshot()
    events = [event for event in snapshot["device_traces"][device.index] if event["addr"] == address]
    assert [event["action"] for event in events] == ["alloc", "free_requested", "free_completed"]
    assert all(event["size"] >= 4 << 20 and event["stream"] == 0 for event in events)
    assert any(frame["filename"] == __file__ for frame in events[0]["frames"])
    assert len(snapshot["device_traces"][device.index]) <= 200
    assert "<html" in _memory_viz.trace_plot(snapshot)
    torch.opencl.memory._record_memory_history(enabled=None, clear_history=True)
    assert torch.opencl.memory._snapshot()["device_traces"][device.index] == []
    with pytest.raises(RuntimeError, match="expected enabled to be"):
        torch.opencl.memory._record_memory_history(enabled="sometimes")
