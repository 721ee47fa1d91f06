#include "cpu/host_call.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/COW.h>
#include <algorithm>
#include <cstring>

#include "native/memory.h"
#include "runtime/bridge.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"

namespace torch_opencl {

void HostMemory::add(const at::Tensor& tensor) {
  if (!is_small_ || !tensor.defined()) return;
  if (!tensor.is_privateuseone()) {
    // Kernels check such a tensor's device. ATen's CPU functions cannot: to them all tensors are on one device.
    is_small_ = tensor.dim() == 0;
    return;
  }
  elements_ += tensor.numel();
  // A copy-on-write tensor gets its own memory only when it is written to.
  const bool has_memory = tensor.layout() == at::kStrided && tensor.numel() > 0 && tensor.storage().data() != nullptr &&
      !c10::impl::cow::is_cow_data_ptr(tensor.storage().data_ptr());
  is_small_ = has_memory && elements_ <= cpu_policy::limits(cost_).elements &&
      (dtypes_ == Dtypes::All || is_same_on_host(tensor.scalar_type())) && !tensor.is_neg();
  if (!is_small_) return;
  // A result has at most as many rows as the matrices, or indices, and as many columns.
  const int64_t columns = tensor.dim() > 1 ? tensor.size(-1) : 1;
  const bool is_index = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
  rows_ = std::max(rows_, is_index ? tensor.numel() : tensor.dim() > 1 ? tensor.numel() / columns : 1);
  columns_ = std::max(columns_, columns);
  const auto [left, left_rows, right, right_columns] = operands_;
  operands_ = {right, right / right_columns, tensor.numel(), columns};
  storages_.push_back(tensor.storage().unsafeGetStorageImpl());
  if (addresses_.empty()) {
    dtype_ = tensor.scalar_type();
    dims_ = tensor.dim();
    planes_ = dims_ > 1 ? tensor.size(0) * tensor.size(1) : 1;
  }
  has_one_dtype_ = has_one_dtype_ && tensor.scalar_type() == dtype_;
  device_ = tensor.device();
  addresses_.push_back(reinterpret_cast<size_t>(tensor.const_data_ptr()));
}

void HostMemory::add(const TensorArgs& args) {
  const auto& tensors = args.tensors();
  for (size_t i = 0; i < tensors.size(); i++) {
    const auto [tensor, use] = tensors[i];
    if (use == TensorArg::Use::Output) {
      add_output(*tensor);
    } else if (use == TensorArg::Use::Index) {
      size_t end = i;
      while (end < tensors.size() && tensors[end].use == use) end++;
      add_indices({tensors.begin() + i, end - i});
      i = end - 1;
    } else {
      add(*tensor);
    }
  }
  add_lists(args.lists());
  if (cost_ != Cost::Sizes) return;
  for (const c10::SymIntArrayRef sizes : args.sizes()) expect(sizes);
}

void HostMemory::add_output(const at::Tensor& tensor) {
  const size_t position = storages_.size();
  const Operands operands = operands_;
  add(tensor);
  operands_ = operands;
  if (storages_.size() > position) outputs_.push_back(position);
}

// The tensors of a list must have one dtype: the CPU kernel may have changed the first tensors before it rejects the
// dtype of a later one.
void HostMemory::add_lists(c10::ArrayRef<at::TensorList> lists) {
  for (const at::TensorList& list : lists) {
    for (size_t i = 0; i < list.size(); i++) {
      const at::Tensor& tensor = list[i];
      const at::Tensor& first = i < lists.front().size() ? lists.front()[i] : tensor;
      is_small_ = is_small_ && tensor.scalar_type() == list.front().scalar_type();
      const bool is_dense = tensor.is_non_overlapping_and_dense() && tensor.strides() == first.strides();
      lists_are_alike_ = lists_are_alike_ && (tensor.numel() == 1 || is_dense);
    }
  }
}

// ATen also accepts indices on the host.
void HostMemory::add_indices(c10::ArrayRef<TensorArg> indices) {
  int64_t positions = 1;
  const at::Tensor* previous = nullptr;
  for (const TensorArg& index : indices) {
    const at::Tensor& tensor = *index.tensor;
    if (!tensor.defined()) continue;
    if (!tensor.is_cpu()) add(tensor);
    // Indices of different sizes are broadcast.
    const bool is_same = previous != nullptr && tensor.sizes().equals(previous->sizes());
    if (!is_same) positions *= std::max<int64_t>(tensor.numel(), 1);
    previous = &tensor;
    if (positions > kMaxPositions) is_small_ = false;
  }
  rows_ = std::max(rows_, is_small_ ? positions : 1);
}

void HostMemory::expect(c10::SymIntArrayRef sizes) {
  constexpr int64_t kMost = cpu_policy::limits(Cost::Sizes).elements;
  int64_t count = static_cast<int64_t>(sizes.size()) < dims_ ? planes_ : 1;
  for (const int64_t size : C10_AS_INTARRAYREF_SLOW(sizes)) {
    // The product of two factors with so few bits does not overflow.
    is_small_ = is_small_ && size <= kMost && count <= kMost;
    if (!is_small_) return;
    count *= size;
  }
  elements_ += count;
}

cpu_policy::Work HostMemory::work() const {
  cpu_policy::Work work{.elements = elements_};
  if (cost_ == Cost::Table || cost_ == Cost::Sizes) {
    work.results = rows_ * columns_;
  } else if (cost_ == Cost::Matmul) {
    const auto& [left, left_rows, right, right_columns] = operands_;
    work.results = left_rows * right_columns;
    work.multiplications = left * right_columns;
  }
  return work;
}

bool HostMemory::open() {
  return is_small_ && !addresses_.empty() && cpu_policy::is_small(cost_, work()) &&
      bridge::to_host_if_idle({addresses_.data(), addresses_.size()});
}

bool HostMemory::has_aliases() const {
  if (!outputs_.empty()) {
    return std::any_of(outputs_.begin(), outputs_.end(), [&](size_t output) {
      return std::count(storages_.begin(), storages_.end(), storages_[output]) > 1;
    });
  }
  std::vector<const void*> sorted(storages_.begin(), storages_.end());
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
}

at::Tensor HostMemory::view(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  auto* const data = reinterpret_cast<void*>(addresses_[viewed_++]);
  const size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
  at::Storage storage(
      at::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, at::kCPU), /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor host = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) host.unsafeGetTensorImpl()->set_wrapped_number(true);
  return host;
}

at::Tensor HostMemory::to_device(const at::Tensor& result) const {
  if (!result.defined()) return result;
  const at::Tensor packed = result.is_non_overlapping_and_dense() ? result : result.contiguous();
  const at::TensorOptions options = packed.options().device(device_);
  at::Tensor copy = native::empty_strided(packed.sizes(), packed.strides(), options);
  const size_t bytes = packed.nbytes();
  if (bytes == 0) return copy;
  const size_t address = address_of(copy);
  size_t host = address;
  if (bridge::to_host_if_idle({&host, 1})) {
    std::memcpy(reinterpret_cast<void*>(host), packed.const_data_ptr(), bytes);
  } else {
    const auto* data = static_cast<const uint8_t*>(packed.const_data_ptr());
    checked([&] { bridge::copy_host_to_device(address, data, bytes, /*non_blocking=*/false); });
  }
  return copy;
}

} // namespace torch_opencl
