"""torch.accelerator and the other interfaces that are common to all backends."""

import gc

import torch


def test_this_is_the_accelerator(device):
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("opencl")
    assert torch.accelerator.current_accelerator(check_available=True) == torch.device("opencl")
    assert torch.accelerator.device_count() == torch.opencl.device_count()
    assert torch.get_device_module("opencl") is torch.opencl
    assert torch.get_device_module() is torch.opencl
    assert torch._C._get_privateuse1_backend_name() == "opencl"


def test_current_device(device):
    torch.accelerator.set_device_index(device.index)
    assert torch.accelerator.current_device_index() == device.index
    with torch.accelerator.device_index(device.index):
        assert torch.opencl.current_device() == device.index
    with torch.device("opencl"):
        assert torch.ones(2).device == device
    torch.set_default_device("opencl")
    try:
        assert torch.zeros(1).device == torch.tensor([1]).device == device
    finally:
        torch.set_default_device(None)


def test_streams(device, side_stream):
    torch.accelerator.set_stream(side_stream)
    assert torch.accelerator.current_stream() == side_stream
    torch.accelerator.set_stream(torch.opencl.default_stream())
    stream, event = torch.Stream("opencl"), torch.Event("opencl")
    with stream:
        x = torch.ones(1000, device=device)
        event.record()
    event.synchronize()
    torch.accelerator.synchronize()
    assert stream.query() and x.sum().item() == 1000


def test_memory(device):
    gc.collect()  # an error that an earlier test caught holds its tensors in a cycle
    tensor = torch.empty(1 << 20, device=device)
    assert torch.accelerator.memory_allocated() == torch.opencl.memory_allocated() >= 4 << 20
    assert torch.accelerator.memory_reserved() == torch.opencl.memory_reserved()
    assert torch.accelerator.max_memory_allocated() == torch.opencl.max_memory_allocated()
    assert torch.accelerator.max_memory_reserved() == torch.opencl.max_memory_reserved()
    assert torch.accelerator.get_memory_info() == torch.opencl.mem_get_info()
    stats = torch.accelerator.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.opencl.memory_allocated()
    assert stats["num_ooms"] == torch.opencl.memory_stats()["num_ooms"]
    del tensor
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.empty_cache()
    assert torch.accelerator.max_memory_allocated() == torch.opencl.memory_allocated()


def test_capability_lists_the_dtypes(device):
    dtypes = torch.accelerator.get_device_capability(device)["supported_dtypes"]
    assert {torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.complex64} <= dtypes
    assert (torch.float64 in dtypes) == torch.opencl.get_device_properties(device).fp64
    assert torch.qint8 not in dtypes


def test_methods_of_tensors_and_modules(device):
    tensor = torch.ones(2).opencl()
    assert tensor.is_opencl and tensor.device == device
    assert not torch.ones(2).is_opencl
    assert torch.nn.Linear(2, 2).opencl().weight.is_opencl
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
    assert packed.opencl().is_opencl
    assert torch.ones(2).untyped_storage().opencl().device == device
    assert tensor.type() == "torch.opencl.FloatTensor"


def test_default_rng_follows_torch_manual_seed(device):
    torch.manual_seed(4)
    first = torch.randn(5, device=device).cpu()
    with torch.random.fork_rng(device_type="opencl"):
        torch.manual_seed(4)
        assert torch.randn(5, device=device).cpu().equal(first)
