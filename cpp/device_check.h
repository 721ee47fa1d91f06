// Tensors of one op must live on one device.
#pragma once

#include <c10/core/Device.h>
#include <optional>
#include <string_view>

namespace torch_opencl {

// Raises when tensors of one call live on different devices, and names the cure.
class DeviceCheck {
 public:
  // `op` must outlive the check.
  explicit DeviceCheck(std::string_view op) : op_(op) {}

  void add(c10::Device device);
  // Of the tensors so far.
  std::optional<c10::Device> device() const {
    return device_;
  }
  // Raises if all tensors that were added are on the host: an op of this backend needs one on its device. Callers do
  // not add scalars and indices, which may be on the host.
  void require_device() const;

 private:
  std::string_view op_;
  std::optional<c10::Device> device_;
};

} // namespace torch_opencl
