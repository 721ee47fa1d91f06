// Memory of tensors that CPU functions create for a device that shares the host's memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <optional>

namespace torch_opencl {

// During its lifetime, large tensors that this thread creates on the CPU lie in device memory that is mapped for the
// host: a result need not be copied to the device, and its memory comes from the device's cache. Nothing changes for a
// device with separate memory.
class MakesDeviceMemory {
 public:
  explicit MakesDeviceMemory(std::optional<c10::Device> device);
  MakesDeviceMemory(const MakesDeviceMemory&) = delete;
  MakesDeviceMemory& operator=(const MakesDeviceMemory&) = delete;
  ~MakesDeviceMemory();

 private:
  c10::DeviceIndex outer_;
};

// Turns a CPU tensor into a tensor of the device in whose memory it lies, if the tensor and its storage have no other
// reference. `host` then loses its memory.
std::optional<at::Tensor> take_device_memory(const at::Tensor& host);

} // namespace torch_opencl
