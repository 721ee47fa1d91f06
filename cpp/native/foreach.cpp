#include "native/foreach.h"

#include <ATen/ops/_foreach_copy_native.h>
#include <ATen/ops/_foreach_zero_native.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_norm_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <algorithm>
#include <limits>

#include "runtime/compat.h"
#if TORCH_OPENCL_TORCH_AT_LEAST(13)
#include <ATen/ops/_foreach_clone_native.h>
#endif

#include "entries/foreach.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/foreach/mod.rs.h"
#include "torch_opencl/rust/ops/foreach/norm.rs.h"

namespace torch_opencl::native {
namespace foreach {

bool Call::is_simple() const {
  const at::TensorList self = lists[0];
  if (self.empty() || !self[0].is_privateuseone() || (scalars_are_list && scalars.size() != self.size())) return false;
  const at::ScalarType dtype = self[0].scalar_type();
  const auto is_odd = [](const at::Scalar& scalar) { return scalar.isComplex() || scalar.isBoolean(); };
  if (!at::isFloatingType(dtype) || std::any_of(scalars.begin(), scalars.end(), is_odd)) return false;
  if (one.defined() && (one.dim() != 0 || one.device() != self[0].device() || !one.is_floating_point())) return false;
  // A scalar tensor of another dtype promotes 0-dim tensors.
  const auto is_number = [](const at::Tensor& tensor) { return tensor.dim() == 0; };
  if (one.defined() && std::any_of(self.begin(), self.end(), is_number)) return false;
  const auto lies_as = [&](const at::Tensor& tensor, const at::Tensor& like) {
    return tensor.scalar_type() == dtype && tensor.device() == self[0].device() && tensor.layout() == at::kStrided &&
        tensor.sizes() == like.sizes() && tensor.strides() == like.strides() && !tensor.is_neg() &&
        at::get_overlap_status(tensor, like) != at::MemOverlapStatus::Partial;
  };
  return std::all_of(
             lists.begin(), lists.end(),
             [&](at::TensorList list) {
               return list.size() == self.size() && std::equal(list.begin(), list.end(), self.begin(), lies_as);
             }) &&
      std::all_of(
             self.begin(), self.end(), [](const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); });
}

std::vector<at::Tensor> Call::like_self() const {
  std::vector<at::Tensor> out;
  out.reserve(lists[0].size());
  for (const at::Tensor& tensor : lists[0]) out.push_back(at::empty_like(tensor));
  return out;
}

void Call::run(PointwiseOp op, at::TensorList out) const {
  const size_t length = out.size();
  std::vector<int64_t> counts;
  counts.reserve(length);
  for (const at::Tensor& tensor : out) counts.push_back(tensor.numel());

  // The output first, then the inputs.
  c10::SmallVector<std::vector<size_t>, 5> addresses;
  c10::SmallVector<bridge::TensorList, 5> operands;
  const auto add = [&](std::vector<size_t> list, at::ScalarType dtype, bool is_one) {
    addresses.push_back(std::move(list));
    operands.push_back({{}, arg(dtype), is_one});
  };
  const auto add_list = [&](at::TensorList list) {
    std::vector<size_t> starts;
    starts.reserve(length);
    for (const at::Tensor& tensor : list) starts.push_back(address_of(tensor));
    add(std::move(starts), list[0].scalar_type(), /*is_one=*/false);
  };
  add_list(out);
  for (const at::TensorList list : lists) add_list(list);
  if (one.defined()) add({address_of(one)}, one.scalar_type(), /*is_one=*/true);
  for (size_t i = 0; i < operands.size(); i++) operands[i].addresses = {addresses[i].data(), addresses[i].size()};

  std::vector<bridge::Scalar> scalar_args;
  scalar_args.reserve(scalars.size());
  for (const at::Scalar& scalar : scalars) scalar_args.push_back(arg(scalar));
  checked([&] {
    bridge::foreach (
        static_cast<uint32_t>(op), arg(at::IntArrayRef(counts)), {operands.data(), operands.size()},
        {scalar_args.data(), scalar_args.size()}, number == Number::Input);
  });
}

} // namespace foreach

void foreach_zero_(at::TensorList self) {
  foreach
    ::Call call{foreach::Number::Parameter, {self}, {}, {at::Scalar(0)}};
  if (!call.is_simple()) return at::native::foreach_tensor_zero_slow_(self);
  call.lists.clear();
  call.run(PointwiseOp::fill__Scalar, self);
}

void foreach_copy_(at::TensorList self, at::TensorList src, bool non_blocking) {
  foreach
    ::Call call{foreach::Number::Parameter, {self, src}, {}, {}};
  if (!call.is_simple()) return at::native::foreach_tensor_copy_list_kernel_slow_(self, src, non_blocking);
  call.lists.erase(call.lists.begin());
  call.run(PointwiseOp::_copy_from, self);
}

#if TORCH_OPENCL_TORCH_AT_LEAST(13)
std::vector<at::Tensor> foreach_clone(at::TensorList self, std::optional<at::MemoryFormat> memory_format) {
  auto call = foreach::Call{foreach::Number::Parameter, {self}, {}, {}};
  const bool preserves = memory_format.value_or(at::MemoryFormat::Preserve) == at::MemoryFormat::Preserve;
  if (!preserves || !call.is_simple()) return at::native::foreach_tensor_clone_slow(self, memory_format);
  std::vector<at::Tensor> out = call.like_self();
  call.run(PointwiseOp::_copy_from, out);
  return out;
}
#endif

// `scalars` is a tensor on the host.
std::vector<at::Tensor> foreach_addcmul_tensor(
    at::TensorList self, at::TensorList tensor1, at::TensorList tensor2, const at::Tensor& scalars) {
  const auto values = at::native::convert_tensor_to_scalar_list(scalars, static_cast<int64_t>(tensor1.size()));
  return at::_foreach_addcmul(self, tensor1, tensor2, values);
}

void foreach_addcmul_tensor_(
    at::TensorList self, at::TensorList tensor1, at::TensorList tensor2, const at::Tensor& scalars) {
  const auto values = at::native::convert_tensor_to_scalar_list(scalars, static_cast<int64_t>(tensor1.size()));
  at::_foreach_addcmul_(self, tensor1, tensor2, values);
}

std::vector<at::Tensor> foreach_addcdiv_tensor(
    at::TensorList self, at::TensorList tensor1, at::TensorList tensor2, const at::Tensor& scalars) {
  const auto values = at::native::convert_tensor_to_scalar_list(scalars, static_cast<int64_t>(tensor1.size()));
  return at::_foreach_addcdiv(self, tensor1, tensor2, values);
}

void foreach_addcdiv_tensor_(
    at::TensorList self, at::TensorList tensor1, at::TensorList tensor2, const at::Tensor& scalars) {
  const auto values = at::native::convert_tensor_to_scalar_list(scalars, static_cast<int64_t>(tensor1.size()));
  at::_foreach_addcdiv_(self, tensor1, tensor2, values);
}

std::vector<at::Tensor> foreach_norm(at::TensorList self, const at::Scalar& ord, std::optional<at::ScalarType> dtype) {
  // A larger tensor is worth a separate launch.
  constexpr int64_t kLargest = 1 << 16;
  const double order = ord.isFloatingPoint() || ord.isIntegral(false) ? ord.toDouble() : 0.0;
  const bool is_known = order == 1.0 || order == 2.0 || order == std::numeric_limits<double>::infinity();
  const auto is_small = [&](const at::Tensor& tensor) { return tensor.numel() <= kLargest; };
  const auto is_plain = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == self[0].scalar_type() && tensor.device() == self[0].device() &&
        tensor.layout() == at::kStrided && tensor.numel() > 0 && tensor.is_non_overlapping_and_dense();
  };
  if (!is_known || dtype.has_value() || self.empty() || !self[0].is_privateuseone() ||
      !at::isFloatingType(self[0].scalar_type()) || !std::all_of(self.begin(), self.end(), is_plain)) {
    return at::native::foreach_tensor_norm_slow(self, ord, dtype);
  }
  const std::vector<at::Tensor> norms = at::empty({static_cast<int64_t>(self.size())}, self[0].options()).unbind();
  std::vector<int64_t> counts;
  std::vector<size_t> results, tensors;
  for (size_t i = 0; i < self.size(); i++) {
    if (!is_small(self[i])) {
      at::Tensor norm = norms[i];
      at::linalg_vector_norm_out(norm, self[i], ord);
      continue;
    }
    counts.push_back(self[i].numel());
    results.push_back(address_of(norms[i]));
    tensors.push_back(address_of(self[i]));
  }
  const auto list = [&](const std::vector<size_t>& addresses) {
    return bridge::TensorList{{addresses.data(), addresses.size()}, arg(self[0].scalar_type()), /*is_one=*/false};
  };
  if (!counts.empty()) {
    checked([&] { bridge::foreach_norm(order, arg(at::IntArrayRef(counts)), list(results), list(tensors)); });
  }
  return norms;
}

} // namespace torch_opencl::native
