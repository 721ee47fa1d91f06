// All tensors of one op must be on one device.
#pragma once

#include <c10/core/Device.h>
#include <optional>
#include <string_view>

namespace torch_opencl {

// Raises if tensors of one call are on different devices. The message says how to fix that.
class DeviceCheck {
 public:
  // `op` must outlive the check.
  explicit DeviceCheck(std::string_view op) : op_(op) {}

  void add(c10::Device device);
  // The device of the tensors added so far.
  std::optional<c10::Device> device() const {
    return device_;
  }
  // Raises if all added tensors are on the host: an op of this backend needs a tensor on its device. Callers do not add
  // scalars and indices, which may be on the host.
  void require_device() const;

 private:
  std::string_view op_;
  std::optional<c10::Device> device_;
};

} // namespace torch_opencl
