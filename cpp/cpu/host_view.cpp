#include "cpu/host_view.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"

namespace torch_opencl {

HostView::HostView(const at::Tensor& device, bool writable) : device_(device), writable_(writable) {
  if (writable) materialize(device);
  // From the first element to the last, with the memory in between if the tensor is not dense.
  bytes_ = at::detail::computeStorageNbytes(device.sizes(), device.strides(), device.element_size());
  // Resizable, so that an out= argument can grow: the CPU then allocates, and write_back copies.
  at::Storage storage(at::Storage::use_byte_size_t(), bytes_, open(), c10::GetCPUAllocator(), /*resizable=*/true);
  host_ = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), device.dtype());
  host_.unsafeGetTensorImpl()->set_sizes_and_strides(device.sizes(), device.strides());
  if (device.is_conj()) host_._set_conj(true);
  if (device.is_neg()) host_._set_neg(true);
  data_ = host_.storage().data();
}

HostView::~HostView() {
  host_ = at::Tensor();
  try {
    unmap();
  } catch (const rust::Error& error) {
    TORCH_WARN("OpenCL: unmapping device memory failed: ", message_of(error));
  }
}

void HostView::write_back() {
  if (!writable_) return;
  if (host_.storage().data() != data_) return copy_replaced();
  if (!mapping_.has_value() && bytes_ > 0) {
    checked([&] { bridge::copy_host_to_device(address(), static_cast<const uint8_t*>(data_), bytes_, false); });
  }
  // The op may have transposed or lazily conjugated an out= argument.
  if (host_.sizes() != device_.sizes() || host_.strides() != device_.strides() || host_.storage_offset() != 0) {
    auto* impl = device_.unsafeGetTensorImpl();
    impl->set_storage_offset(device_.storage_offset() + host_.storage_offset());
    impl->set_sizes_and_strides(host_.sizes(), host_.strides());
  }
  device_._set_conj(host_.is_conj());
  device_._set_neg(host_.is_neg());
}

// Copies back a tensor whose storage the CPU function has replaced.
void HostView::copy_replaced() {
  // Unmap first: some drivers write the memory back when it is unmapped, and resize_ may free this memory.
  checked([&] { unmap(); });
  device_.resize_(host_.sizes());
  if (host_.is_non_overlapping_and_dense()) {
    device_.unsafeGetTensorImpl()->set_sizes_and_strides(host_.sizes(), host_.strides());
  }
  device_._set_conj(host_.is_conj());
  device_._set_neg(host_.is_neg());
  device_.copy_(host_);
}

size_t HostView::address() const {
  return address_of(device_);
}

at::DataPtr HostView::open() {
  if (bytes_ == 0) return {nullptr, at::kCPU};
  if (checked([&] { return bridge::is_host_unified(device_.device().index()); })) {
    mapping_.emplace(checked([&] { return bridge::map(address(), bytes_, writable_); }));
    return {reinterpret_cast<void*>((*mapping_)->pointer()), at::kCPU};
  }
  at::DataPtr copy = c10::GetCPUAllocator()->allocate(bytes_);
  checked([&] { bridge::copy_device_to_host(static_cast<uint8_t*>(copy.get()), address(), bytes_, false); });
  return copy;
}

void HostView::unmap() {
  if (!mapping_.has_value()) return;
  rust::Box<bridge::Mapping> mapping = std::move(*mapping_);
  mapping_.reset();
  bridge::unmap(std::move(mapping));
}

} // namespace torch_opencl
