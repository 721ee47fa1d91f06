#include "entries/reduce.h"

#include <ATen/TensorOperators.h>

namespace torch_opencl::native {

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(
      self.scalar_type() == other.scalar_type(), "Expected all tensors to have the same dtype, but got ",
      self.scalar_type(), " and ", other.scalar_type());
  return self.sizes() == other.sizes() && (self.numel() == 0 || self.eq(other).all().item<bool>());
}

void isin(const at::Tensor& elements, const at::Tensor& test_elements, bool invert, const at::Tensor& out) {
  const at::Tensor found = elements.unsqueeze(-1).eq(test_elements.reshape(-1)).any(-1);
  out.copy_(invert ? found.logical_not() : found);
}

} // namespace torch_opencl::native
