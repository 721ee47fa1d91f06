// Shared by the files that define torch.ops.torch_opencl.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <cstdint>
#include <utility>

namespace torch_opencl {

// A value too large for an index must not turn into one when it is truncated.
inline int32_t device_index(int64_t device) {
  TORCH_CHECK(std::in_range<c10::DeviceIndex>(device), "OpenCL: invalid device index ", device);
  return static_cast<int32_t>(device);
}

// The address of a function that python/launch calls, as it declares it; 0 where this PyTorch lacks what it needs.
int64_t new_tensor_function();

} // namespace torch_opencl
