#include "cpu/host_on_cpu.h"

#include <ATen/core/Tensor.h>

#include "runtime/bridge.h"
#include "runtime/error.h"

namespace torch_opencl {
bool is_host_cpu(const at::Tensor& tensor) {
  return checked([&] { return bridge::is_host_cpu(tensor.get_device()); });
}

} // namespace torch_opencl
