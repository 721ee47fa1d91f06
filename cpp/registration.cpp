#include "registration.h"

namespace torch_opencl {

void ArgumentCheck::look(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const c10::Device device = tensor.device();
  if (crosses_devices_) {
    // Transfers are between two devices by nature.
  } else if (device.type() == c10::DeviceType::PrivateUse1) {
    TORCH_CHECK(
        !device_.has_value() || *device_ == device, op_,
        ": Expected all tensors to be on the same device, but found at ", "least two devices, ", *device_, " and ",
        device, "!");
    device_ = device;
  } else {
    // A number in a tensor may come from the host, as everywhere in PyTorch.
    TORCH_CHECK(
        tensor.dim() == 0, op_, ": Expected all tensors to be on the same device, but found at least two devices, ",
        "opencl and ", device, "! Move the tensor of shape ", tensor.sizes(), " with .to(\"opencl\").");
  }
  const auto code = static_cast<unsigned>(tensor.scalar_type());
  supported_ = supported_ && code < 32 && ((dtypes_ >> code) & 1u) != 0;
}

} // namespace torch_opencl
