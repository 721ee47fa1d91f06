"""Streams, events, timing, memory and random states, in the style of scripts for CUDA."""

import json

import torch

assert torch.cuda.is_available() and torch.cuda.device_count() >= 1
torch.cuda.set_device(0)
torch.cuda.init()
device = torch.device("cuda", torch.cuda.current_device())
properties = torch.cuda.get_device_properties(device)
assert properties.total_memory > 0 and torch.cuda.get_device_name(0) == properties.name

torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated(device)
a = torch.randn(256, 256, device=device)
b = torch.randn_like(a)
assert torch.cuda.memory_allocated(device) - before >= 2 * a.nbytes
assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
free, total = torch.cuda.mem_get_info()
assert 0 < free <= total

start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
stream, other = torch.cuda.Stream(), torch.cuda.Stream(device=device, priority=-1)
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    assert torch.cuda.current_stream() == stream
    start.record()
    product = a @ b
    end.record(stream)
product.record_stream(other)
with torch.cuda.stream(other):
    other.wait_event(end)
    total_of_product = product.double().sum() if properties.fp64 else product.sum()
torch.cuda.current_stream().wait_stream(other)
torch.cuda.synchronize()
assert end.query() and start.elapsed_time(end) >= 0
close = torch.allclose(product.cpu(), a.cpu() @ b.cpu(), rtol=1e-3, atol=1e-3)

state = torch.cuda.get_rng_state()
first = torch.rand(5, device="cuda")
torch.cuda.set_rng_state(state)
repeats = torch.equal(first, torch.rand(5, device="cuda"))
generator = torch.Generator(device="cuda")
generator.manual_seed(3)
drawn = torch.randn(4, device="cuda", generator=generator)
with torch.random.fork_rng(devices=[0]):
    torch.cuda.manual_seed(5)
with torch.cuda.device(0):
    placed = torch.zeros(2, device="cuda").new_tensor([1.0, 2.0], device="cuda:0")
kinds = sorted({tensor.device.type for tensor in (product, total_of_product, drawn, placed)})
print(json.dumps({"close": close, "repeats": repeats, "devices": kinds}))
