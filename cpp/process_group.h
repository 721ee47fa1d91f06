// torch.distributed with tensors of the device.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace torch_opencl {

// Gives a group that has a backend for the CPU another one for this device, which has that one carry out collectives.
void add_device_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

} // namespace torch_opencl
