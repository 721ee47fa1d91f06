#include "entries/composite.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>

namespace torch_opencl::native {

// Scales the rows at `indices` down to a norm of `max_norm` if theirs is larger. A row that is indexed twice is written
// twice, with the same values.
at::Tensor& embedding_renorm_(at::Tensor& self, const at::Tensor& indices, double max_norm, double norm_type) {
  const at::TensorArg self_arg(self, "self", 1), indices_arg(indices, "indices", 2);
  at::checkDim("embedding_renorm_", self_arg, 2);
  at::checkScalarTypes("embedding_renorm_", indices_arg, {at::kLong, at::kInt});
  if (indices.numel() == 0) return self;
  const int64_t count = self.size(0);
  const at::Tensor flat = indices.reshape({-1}).to(at::kLong);
  const auto [least, greatest] = flat.aminmax();
  for (const int64_t index : {least.item<int64_t>(), greatest.item<int64_t>()}) {
    TORCH_CHECK_INDEX(
        index >= -count && index < count, "select(): index ", index, " out of range for tensor of size ", self.sizes(),
        " at dimension 0");
  }
  const at::Tensor named = flat.remainder(count), rows = self.index_select(0, named);
  const auto dtype = at::toOpMathType(self.scalar_type());
  const at::Tensor norms = at::linalg_vector_norm(rows, norm_type, 1, /*keepdim=*/true).to(dtype);
  const at::Tensor scales = at::where(norms.gt(max_norm), max_norm / (norms + 1e-7), 1.0);
  return self.index_copy_(0, named, rows.to(dtype).mul_(scales).to(self.scalar_type()));
}

} // namespace torch_opencl::native
