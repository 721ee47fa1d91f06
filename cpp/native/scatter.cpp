// Writing along one dimension.
#include "entries/index.h"

#include <ATen/native/CPUFallback.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/scatter_reduce.h>

#include "cpu/cpu_policy.h"
#include "dispatch/fallback.h"
#include "native/index.h"
#include "native/index_moves.h"
#include "runtime/bridge.h"
#include "runtime/error.h"

namespace torch_opencl::native {
namespace {

using bridge::SetOp;

SetOp set_op(at::native::ReductionType reduce) {
  switch (reduce) {
    case at::native::ReductionType::MAX:
      return SetOp::Maximum;
    case at::native::ReductionType::MIN:
      return SetOp::Minimum;
    case at::native::ReductionType::PROD:
      return SetOp::Multiply;
    // ATen divides sums by counts itself.
    case at::native::ReductionType::MEAN:
    case at::native::ReductionType::SUM:
      break;
  }
  return SetOp::Add;
}

} // namespace

void scatter(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src) {
  scatter_along(self, dim, index, src, SetOp::Assign, index);
}

void scatter_fill(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Scalar& value) {
  scatter_along(self, dim, index, filled(value, self).expand(index.sizes()), SetOp::Assign, index);
}

bool scatters_on_host(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  if (self.numel() == 0 || self.dim() == 0) return false;
  return cpu_policy::has_few_lanes(self, index.numel(), self.numel() / self.size(dim));
}

namespace {

std::string_view name_of(at::native::ReductionType reduce) {
  using at::native::ReductionType;
  if (reduce == ReductionType::PROD) return "prod";
  if (reduce == ReductionType::MAX) return "amax";
  return reduce == ReductionType::MIN ? "amin" : "sum"; // of a mean, too: ATen divides afterwards
}

} // namespace

void scatter_add(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src) {
  if (scatters_on_host(self, dim, index)) {
    at::Tensor out = self;
    at::native::call_fallback_fn<&host_kernel, at::_ops::scatter_add_>::call(out, dim, index, src);
    return;
  }
  scatter_along(self, dim, index, src, SetOp::Add, index);
}

void scatter_reduce(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src,
    const at::native::ReductionType& reduce) {
  if (scatters_on_host(self, dim, index)) {
    at::Tensor out = self;
    at::native::call_fallback_fn<&host_kernel, at::_ops::scatter_reduce__two>::call(
        out, dim, index, src, name_of(reduce), /*include_self=*/true);
    return;
  }
  scatter_along(self, dim, index, src, set_op(reduce), index);
}

template <class Meta>
void ScatterReduce<Meta>::impl(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src,
    c10::string_view reduce,
    bool include_self,
    const at::Tensor& result) {
  if (reduce == "mean" && c10::isReducedFloatingType(result.scalar_type())) {
    result.copy_(at::scatter_reduce(self.to(at::kFloat), dim, index, src.to(at::kFloat), reduce, include_self));
    return;
  }
  at::native::structured_scatter_reduce_two::impl(self, dim, index, src, reduce, include_self, result);
}

template struct ScatterReduce<at::meta::structured_scatter_reduce_two>;

void scatter_scalar_reduce(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Scalar& value,
    const at::native::ReductionType& reduce) {
  scatter_along(self, dim, index, filled(value, self).expand(index.sizes()), set_op(reduce), index);
}

} // namespace torch_opencl::native
