// Shared by the files that define torch.ops.torch_opencl.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <cstdint>
#include <utility>

namespace torch_opencl {

// Raises for a value that is too large: truncated, it could become a valid index.
inline int32_t device_index(int64_t device) {
  TORCH_CHECK(std::in_range<c10::DeviceIndex>(device), "OpenCL: invalid device index ", device);
  return static_cast<int32_t>(device);
}

// The address of a function that python/launch declares and calls; 0 if this PyTorch lacks what the function needs.
int64_t new_tensor_function();

} // namespace torch_opencl
