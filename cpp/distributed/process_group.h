// torch.distributed with tensors of the device.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace torch_opencl {

// Adds a backend for this device to a group with a CPU backend. The new one runs its collectives in the CPU backend.
void add_device_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

} // namespace torch_opencl
