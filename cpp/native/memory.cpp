#include "native/memory.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/DeviceGuard.h>

#include "entries/copy.h"
#include "runtime/allocator.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"

namespace torch_opencl::native {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !layout.has_value() || *layout == at::kStrided, "opencl tensors are strided, not ", *layout);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned, not opencl tensors");
}

c10::Device device_or_current(std::optional<at::Device> device) {
  if (device.has_value() && device->has_index()) return *device;
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(bridge::current_device())};
}

// Raises where the device does not exist, before anything is allocated for it.
class AllocationGuard {
 public:
  explicit AllocationGuard(std::optional<at::Device> device) : guard_(checked_device(device)) {}

 private:
  static c10::Device checked_device(std::optional<at::Device> device) {
    const c10::Device chosen = device_or_current(device);
    checked([&] { bridge::initialize(chosen.index()); });
    return chosen;
  }
  c10::DeviceGuard guard_;
};

bool fills_memory() {
  const auto& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

// Deterministic mode can fill new memory with NaN, or the greatest integer, instead of leaving it uninitialised.
at::Tensor filled_if_deterministic(at::Tensor tensor) {
  if (fills_memory() && tensor.numel() > 0) at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

void grow_storage(const at::Tensor& self, size_t bytes) {
  const at::Storage& storage = self.storage();
  if (bytes > storage.nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, bytes);
}

} // namespace

at::Tensor empty(
    at::IntArrayRef sizes,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory,
    std::optional<at::MemoryFormat> memory_format) {
  check_options(layout, pin_memory);
  const AllocationGuard guard(device);
  return filled_if_deterministic(
      at::detail::empty_generic(sizes, device_allocator(), kKeys, c10::dtype_or_default(dtype), memory_format));
}

// Zeros without memory, as derivatives in forward mode that are known to be zero.
at::Tensor efficientzerotensor(
    at::IntArrayRef sizes,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const AllocationGuard guard(device);
  at::native::ZeroTensorAllocator allocator(device_or_current(device));
  constexpr auto keys = kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(sizes, &allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return empty(
      sizes, c10::optTypeMetaToScalarType(options.dtype_opt()), options.layout_opt(), options.device_opt(),
      options.pinned_memory_opt(), options.memory_format_opt());
}

at::Tensor empty_strided(
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const AllocationGuard guard(device);
  return filled_if_deterministic(
      at::detail::empty_strided_generic(sizes, strides, device_allocator(), kKeys, c10::dtype_or_default(dtype)));
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  return empty_strided(
      sizes, strides, c10::optTypeMetaToScalarType(options.dtype_opt()), options.layout_opt(), options.device_opt(),
      options.pinned_memory_opt());
}

const at::Tensor& resize_(
    const at::Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat> memory_format) {
  const c10::DeviceGuard guard(self.device());
  auto* impl = self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(self.storage().nbytes());
  if (impl->sizes() != sizes) {
    impl->set_sizes_contiguous(sizes);
    if (impl->numel() > 0) {
      grow_storage(self, at::detail::computeStorageNbytesContiguous(sizes, self.element_size(), self.storage_offset()));
    }
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(
        *memory_format != at::MemoryFormat::Preserve, "Unsupported memory format ", *memory_format, " in resize_");
    impl->empty_tensor_restride(*memory_format);
  }
  if (fills_memory()) at::native::fill_resize_deterministic_(self, old_bytes);
  return self;
}

at::Tensor& set_(at::Tensor& self) {
  at::Storage storage(
      at::Storage::use_byte_size_t(), 0, device_allocator()->allocate(0), device_allocator(), /*resizable=*/true);
  return set_storage_(self, std::move(storage), 0, {0}, {});
}

at::Tensor& set_storage_(
    at::Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  const c10::DeviceGuard guard(storage.device());
  at::native::checkSetStorage(self, std::move(storage), offset, sizes, strides, /*check_offset_in_bounds=*/false);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (strides.data() != nullptr) {
    impl->set_sizes_and_strides(sizes, strides);
  } else {
    impl->set_sizes_contiguous(sizes);
  }
  if (impl->numel() > 0) {
    grow_storage(self, at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.element_size(), offset));
  }
  return self;
}

// Keeps freed memory from being reused before the stream has completed the work it holds now.
void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

// Waits for the device.
at::Scalar _local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  at::Tensor host = at::Tensor(at::detail::empty_cpu({}, self.scalar_type()));
  checked([&] {
    bridge::copy_device_to_host(
        static_cast<uint8_t*>(host.mutable_data_ptr()), address_of(self), self.element_size(), false);
  });
  return host.item();
}

} // namespace torch_opencl::native
