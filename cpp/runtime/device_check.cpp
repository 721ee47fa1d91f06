#include "runtime/device_check.h"

#include <c10/util/Exception.h>

namespace torch_opencl {
namespace {

[[noreturn]] void raise(std::string_view op, c10::Device a, c10::Device b) {
  const c10::Device target = a.is_privateuseone() ? a : b;
  TORCH_CHECK(
      false, op, ": Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
      "! Move them to one with .to(\"", target, "\").");
}

} // namespace

void DeviceCheck::add(c10::Device device) {
  if (device_.has_value() && *device_ != device) raise(op_, *device_, device);
  device_ = device;
}

void DeviceCheck::require_device() const {
  if (device_.has_value() && !device_->is_privateuseone()) raise(op_, *device_, c10::DeviceType::PrivateUse1);
}

} // namespace torch_opencl
