// Calls with few elements that only kernels compute, such as those that draw random numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include "bridge.h"
#include "error.h"

namespace torch_opencl {

// Around the launch of a kernel over few elements. Where the host computes such calls (host_call.h), a stream that was
// idle is waited for: otherwise every call behind this one would have to be enqueued.
class StaysIdle {
 public:
  explicit StaysIdle(const at::TensorBase& tensor) : device_(tensor.get_device()) {
    constexpr int64_t kLarge = int64_t{1} << 16;
    auto address = reinterpret_cast<size_t>(tensor.const_data_ptr());
    // Who looks for operations that wait is not to find this one.
    was_idle_ = tensor.numel() < kLarge && bridge::sync_debug_mode() == 0 && bridge::to_host_if_idle({&address, 1});
  }

  // After the launch.
  void wait() const {
    if (was_idle_) checked([&] { bridge::synchronize_stream(device_, bridge::current_stream(device_)); });
  }

 private:
  int32_t device_;
  bool was_idle_;
};

} // namespace torch_opencl
