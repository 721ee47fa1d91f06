// Memory of what the CPU's functions make for a device that shares the host's memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <optional>

namespace torch_opencl {

// While one lives, large tensors that this thread makes on the CPU lie in memory of a device, mapped for the host: a
// result need not be copied there, and comes from the device's cache of memory. Nothing changes for a device that has
// memory of its own.
class MakesDeviceMemory {
 public:
  explicit MakesDeviceMemory(std::optional<c10::Device> device);
  MakesDeviceMemory(const MakesDeviceMemory&) = delete;
  MakesDeviceMemory& operator=(const MakesDeviceMemory&) = delete;
  ~MakesDeviceMemory();

 private:
  c10::DeviceIndex outer_;
};

// A tensor of the CPU as one of the device in whose memory it lies, if nobody else has it or its storage: it loses its
// memory then.
std::optional<at::Tensor> take_device_memory(const at::Tensor& host);

} // namespace torch_opencl
