"""User code that mypy has to accept: `make lint` checks this file, and nothing runs it."""

from typing import assert_type

import torch
import torch_opencl

x = torch.ones(3, device="opencl")
assert_type(x.opencl(), torch.Tensor)
assert_type(x.opencl(0, non_blocking=True), torch.Tensor)
assert_type(x.is_opencl, bool)

model = torch.nn.Linear(3, 3).opencl()
assert_type(model, torch.nn.Linear)

assert_type(torch_opencl.memory_allocated(), int)
assert_type(torch.opencl.memory_allocated("opencl:0"), int)
assert_type(torch.opencl.device_count(), int)
assert_type(torch.opencl.get_device_properties().name, str)
assert_type(torch.opencl.integrations.enable("accelerate"), tuple[str, ...])
torch.opencl.synchronize()

with torch.opencl.stream(torch.opencl.Stream()), torch.opencl.device(0):
    x.add_(1)

torch.opencl.memory_allocated("a", "b")  # type: ignore[call-arg]  # mypy must find this error
