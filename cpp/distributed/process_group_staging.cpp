#include "distributed/process_group_staging.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace torch_opencl::distributed {
namespace {

// Views a tensor as bytes and keeps the length of dimension 0.
at::Tensor as_bytes(const at::Tensor& host) {
  TORCH_CHECK_VALUE(host.is_contiguous(), "torch.distributed: tensors of ", host.scalar_type(), " must be contiguous");
  const int64_t rows = host.dim() == 0 ? 1 : host.size(0);
  const int64_t elements = rows == 0 ? 1 : host.numel() / rows;
  const int64_t bytes = elements * static_cast<int64_t>(host.element_size());
  // The HostView keeps the memory alive, not this tensor.
  return at::from_blob(host.data_ptr(), {rows, bytes}, at::TensorOptions(at::kCPU).dtype(at::kByte));
}

} // namespace

bool cpu_backends_support(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kBool:
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
      return true;
    default:
      return false;
  }
}

at::Tensor Staging::values(const at::Tensor& tensor, Access access) {
  TORCH_CHECK(tensor.defined(), "torch.distributed: expected a tensor, got None");
  TORCH_CHECK(
      tensor.is_privateuseone() && tensor.layout() == at::kStrided,
      "torch.distributed: expected dense opencl tensors, ", "but one is ", tensor.layout(), " on ", tensor.device());
  // CPU backends read the elements in memory order.
  TORCH_CHECK_VALUE(tensor.is_non_overlapping_and_dense(), "torch.distributed: tensors must be contiguous");
  device_ = tensor.device();
  views_.push_back(std::make_unique<HostView>(tensor, access == Access::Write));
  return views_.back()->host();
}

Tensors Staging::values(const Tensors& tensors, Access access) {
  Tensors result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) result.push_back(values(tensor, access));
  return result;
}

at::Tensor Staging::moved(const at::Tensor& tensor, Access access) {
  if (tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_contiguous()) {
    if (access == Access::Read) return moved(tensor.contiguous(), access);
    TORCH_CHECK_VALUE(
        at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
        "torch.distributed: elements of an output tensor share memory, as in an expanded tensor. Clone it first.");
    const at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
    keep(tensor);
    then([tensor, copy] { tensor.copy_(copy); });
    return moved(copy, access);
  }
  const at::Tensor host = values(tensor, access);
  return cpu_backends_support(tensor.scalar_type()) ? host : as_bytes(host);
}

Tensors Staging::moved(const Tensors& tensors, Access access) {
  Tensors result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) result.push_back(moved(tensor, access));
  return result;
}

TensorLists Staging::moved(const TensorLists& lists, Access access) {
  TensorLists result;
  result.reserve(lists.size());
  for (const Tensors& tensors : lists) result.push_back(moved(tensors, access));
  return result;
}

Tensors Staging::copied(const Tensors& tensors) {
  Tensors result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(
        tensor.is_privateuseone() && tensor.layout() == at::kSparse,
        "torch.distributed: expected sparse opencl tensors, ", "but one is ", tensor.layout(), " on ", tensor.device());
    device_ = tensor.device();
    result.push_back(tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
    then([tensor, host = result.back()] { tensor.copy_(host); });
  }
  return result;
}

c10::Device Staging::device() const {
  TORCH_CHECK_VALUE(device_.has_value(), "torch.distributed: expected tensors, got an empty list");
  return *device_;
}

void Staging::finish() {
  for (const auto& view : views_) view->write_back();
  const c10::impl::VirtualGuardImpl device(c10::DeviceType::PrivateUse1);
  const auto record = [&](const at::Tensor& tensor) {
    device.recordDataPtrOnStream(tensor.storage().data_ptr(), device.getStream(tensor.device()));
  };
  for (const auto& view : views_) record(view->device());
  for (const at::Tensor& tensor : kept_) record(tensor);
  // Unmaps, because the following functions run kernels, which must not use mapped memory.
  views_.clear();
  for (const auto& function : after_) function();
}

void Staging::close() {
  views_.clear();
  after_.clear();
  kept_.clear();
}

} // namespace torch_opencl::distributed
