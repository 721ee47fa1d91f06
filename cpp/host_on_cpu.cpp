#include "host_on_cpu.h"

#include <ATen/core/Tensor.h>

#include "bridge.h"
#include "error.h"

namespace torch_opencl {
bool is_host_cpu(const at::Tensor& tensor) {
  return checked([&] { return bridge::is_host_cpu(tensor.get_device()); });
}

} // namespace torch_opencl
