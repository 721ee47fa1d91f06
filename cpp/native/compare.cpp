#include "entries/reduce.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/index/searchsorted.rs.h"

namespace torch_opencl::native {

bool equal(const at::Tensor& self, const at::Tensor& other) {
  return self.sizes() == other.sizes() && (self.numel() == 0 || self.eq(other).all().item<bool>());
}

void isin(const at::Tensor& elements, const at::Tensor& test_elements, bool invert, const at::Tensor& out) {
  const at::ScalarType dtype = at::result_type(elements, test_elements);
  const at::Tensor values = elements.to(out.device(), dtype).contiguous();
  const at::Tensor others = test_elements.to(out.device(), dtype).contiguous();
  const at::Tensor found = out.is_contiguous() ? out : at::empty(elements.sizes(), out.options());
  checked([&] { bridge::is_among(arg(found), arg(values), arg(others), invert); });
  if (!found.is_same(out)) out.copy_(found);
}

} // namespace torch_opencl::native
