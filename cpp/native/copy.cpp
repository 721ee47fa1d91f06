#include "entries/copy.h"
#include "entries/unary.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Copy.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/conj_physical.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "cpu/host_call.h"
#include "dispatch/operand.h"
#include "dispatch/pointwise.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/copy/cat.rs.h"
#include "torch_opencl/rust/ops/copy/mod.rs.h"
#include "torch_opencl/rust/ops/pointwise/mod.rs.h"

namespace torch_opencl::native {
namespace {

bool on_opencl(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// A view without the lazy conjugate and negative bits.
at::Tensor raw(const at::Tensor& tensor) {
  const at::Tensor conjugated = tensor.is_conj() ? tensor.conj() : tensor;
  return conjugated.is_neg() ? conjugated._neg_view() : conjugated;
}

// A view of the result and the tensor to copy there, of the same sizes and dtype.
using Part = std::pair<at::Tensor, at::Tensor>;

// Copies parts into `result` in few launches. Returns false, and does nothing, if they do not consist of rows.
bool copied_at_once(const at::Tensor& result, const std::vector<Part>& copies) {
  std::vector<bridge::CatPart> parts;
  for (const auto& [target, part] : copies) {
    if (part.numel() > 0) parts.push_back({arg(target), arg(part)});
  }
  if (parts.empty()) return false;
  return checked([&] { return bridge::cat(arg(result), {parts.data(), parts.size()}); });
}

// Copies few elements, of any dtypes.
bool copied_on_host(const at::Tensor& source, const at::Tensor& target) {
  HostMemory memory(Cost::Table, HostMemory::Dtypes::All);
  const auto views = memory.views<2>({target, source});
  if (!views.has_value()) return false;
  const OneThread one_thread;
  (*views)[0].copy_((*views)[1]);
  return true;
}

// Copies on one device: one kernel handles every cast and layout.
void copy_on_device(const at::Tensor& source, const at::Tensor& target) {
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(true)
                  .add_output(target)
                  .add_const_input(source)
                  .resize_outputs(false)
                  .check_all_same_dtype(false)
                  .check_all_same_device(true)
                  .build();
  // ATen's kernel for casts of 16-bit floats takes memory from the tensors, not from the iterator. Casts of rarer
  // dtypes run on the device.
  const bool is_usual = is_same_on_host(source.scalar_type()) && is_same_on_host(target.scalar_type());
  if (is_usual ? ran_on_host<at::native::copy_stub>(Casts::No, iter, /*non_blocking=*/false)
               : copied_on_host(source, target)) {
    return;
  }
  run_pointwise(iter, PointwiseOp::_copy_from, {});
}

// Returns true if a tensor is neither on an opencl device nor on the host.
bool is_elsewhere(const at::Tensor& tensor) {
  return !on_opencl(tensor) && !tensor.is_cpu();
}

// Returns true if both tensors are dense with the same layout: then a plain transfer is enough.
bool is_plain_transfer(const at::Tensor& source, const at::Tensor& target) {
  return source.scalar_type() == target.scalar_type() && source.sizes() == target.sizes() &&
      source.strides() == target.strides() && source.is_non_overlapping_and_dense();
}

// The elements as one block of memory on the side they are on, converted to `dtype` there.
at::Tensor packed(const at::Tensor& source, at::ScalarType dtype) {
  if (source.scalar_type() == dtype && source.is_non_overlapping_and_dense()) return source;
  return at::empty_like(source, source.options().dtype(dtype)).copy_(source);
}

// Casts happen on the host unless that would transfer more bytes: so a device without float64 never gets such values.
at::ScalarType crossing_dtype(const at::Tensor& source, const at::Tensor& target) {
  const bool narrows = target.element_size() < source.element_size();
  const bool is_free = !on_opencl(source) && target.element_size() == source.element_size();
  return narrows || is_free ? target.scalar_type() : source.scalar_type();
}

// Copies between host and device, or between two devices.
void copy_across(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (!is_plain_transfer(source, target)) {
    const at::Tensor sent = packed(source, crossing_dtype(source, target));
    if (is_plain_transfer(sent, target)) return copy_across(sent, target, non_blocking);
    const at::Tensor received = at::empty_like(sent, sent.options().device(target.device()));
    copy_across(sent, received, non_blocking);
    target.copy_(received);
    return;
  }
  const size_t size = source.nbytes();
  checked([&] {
    if (!on_opencl(source)) {
      const auto* from = static_cast<const uint8_t*>(source.const_data_ptr());
      bridge::copy_host_to_device(address_of(target), from, size, non_blocking);
    } else if (!on_opencl(target)) {
      auto* to = static_cast<uint8_t*>(target.mutable_data_ptr());
      bridge::copy_device_to_host(to, address_of(source), size, non_blocking);
    } else {
      bridge::copy_device_to_device(address_of(target), address_of(source), size);
    }
  });
}

} // namespace

// Copies `self` into `dst`, broadcasting; one of them is an opencl tensor. Returns `dst`.
at::Tensor _copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  if (self.is_same(dst) || dst.numel() == 0) return dst;
  // Copies from or to another backend's device, such as cuda, go through the host.
  if (is_elsewhere(self) || is_elsewhere(dst)) return dst.copy_(self.cpu());
  materialize(dst);
  at::Tensor source = raw(self);
  const at::Tensor target = raw(dst);
  if (self.is_conj() != dst.is_conj()) source = at::conj_physical(source);
  if (self.is_neg() != dst.is_neg()) source = at::neg(source);
  if (source.device() == target.device()) {
    copy_on_device(source, target);
  } else {
    TORCH_CHECK(
        at::is_expandable_to(source.sizes(), target.sizes()), "copy_: a tensor of shape ", source.sizes(),
        " cannot be broadcast to shape ", target.sizes());
    copy_across(source, target, non_blocking);
  }
  return dst;
}

// `_copy_from` after resizing `dst` to the shape of `self`.
at::Tensor _copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  at::native::resize_output(dst, self.sizes());
  return native::_copy_from(self, dst, false);
}

// _copy_from reads lazily conjugated and negated tensors itself. PyTorch's fallbacks would clone them, which copies.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

void flip(at::TensorIterator& iter, bool /*quantized*/) {
  // ATen walks the output backwards along flipped dimensions; its third operand only keeps those from being joined.
  const auto operand = [&](int index) -> bridge::Operand {
    return {
        reinterpret_cast<size_t>(iter.data_ptr(index)),
        arg(iter.dtype(index)),
        arg(iter.strides(index)),
        {0.0, 0.0, 0}};
  };
  const std::array<bridge::Operand, 2> operands{operand(0), operand(1)};
  checked([&] {
    bridge::pointwise(
        static_cast<uint32_t>(PointwiseOp::_copy_from), arg(iter.dtype(1)), arg(iter.shape()), 1,
        rust::Slice<const bridge::Operand>(operands.data(), operands.size()), {}, 0);
  });
}

void cat_out::impl(const at::ITensorListRef& tensors, int64_t dim, const at::Tensor& result) {
  const auto parts = tensors.materialize();
  dim = at::legacy_cat_wrap_dim(dim, parts);
  int64_t start = 0;
  // Views of the result, and the tensors that go there.
  std::vector<Part> copies;
  bool is_plain = true;
  for (const at::Tensor& part : parts) {
    if (at::native::cat_should_skip_tensor(part)) continue;
    copies.emplace_back(result.narrow(dim, start, part.size(dim)), part);
    start += part.size(dim);
    is_plain = is_plain && part.scalar_type() == result.scalar_type() && !part.is_conj() && !part.is_neg();
  }
  if (is_plain && copies.size() > 1 && copied_at_once(result, copies)) return;
  for (const auto& [target, part] : copies) target.copy_(part);
}

void tril_out::impl(const at::Tensor& self, int64_t diagonal, const at::Tensor& result) {
  checked([&] { bridge::triangle(arg(result), arg(self), diagonal, /*upper=*/false); });
}

void triu_out::impl(const at::Tensor& self, int64_t diagonal, const at::Tensor& result) {
  checked([&] { bridge::triangle(arg(result), arg(self), diagonal, /*upper=*/true); });
}

// Cross products of vectors of three elements along `dim`.
void cross(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, int64_t dim) {
  const std::vector<at::Tensor> x = a.unbind(dim), y = b.unbind(dim);
  const auto component = [&](int64_t j, int64_t k) { return (x[j] * y[k]).sub_(x[k] * y[j]); };
  at::Tensor out = result;
  at::stack_out(out, {component(1, 2), component(2, 0), component(0, 1)}, dim);
}

} // namespace torch_opencl::native
