#include "entries/reduce.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>

namespace torch_opencl::native {

at::Tensor trace(const at::Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return self.diagonal().sum();
}

void cross(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, int64_t dim) {
  for (int64_t i = 0; i < 3; i++) {
    const int64_t j = (i + 1) % 3, k = (i + 2) % 3;
    at::Tensor component = result.select(dim, i);
    at::mul_out(component, a.select(dim, j), b.select(dim, k));
    component.sub_(a.select(dim, k) * b.select(dim, j));
  }
}

} // namespace torch_opencl::native
