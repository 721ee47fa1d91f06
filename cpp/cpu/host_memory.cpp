#include "cpu/host_memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <mutex>
#include <unordered_map>

#include "runtime/allocator.h"
#include "runtime/bridge.h"
#include "runtime/error.h"
#include "runtime/interrupt.h"

namespace torch_opencl {
namespace {

constexpr c10::DeviceIndex kNone = -1;
thread_local c10::DeviceIndex device_of_thread = kNone;

// Copying fewer bytes takes no longer than mapping, some 30 us (PoCL, 2 cores).
constexpr size_t kLeast = size_t{1} << 18;

// A block of device memory, mapped for the host.
struct Block {
  size_t address;
  c10::DeviceIndex device;
  rust::Box<bridge::Mapping> mapping;
};

// Blocks by their addresses on the host.
class Blocks {
 public:
  void* add(c10::DeviceIndex device, size_t size) {
    const size_t address = bridge::allocate(device, size);
    try {
      rust::Box<bridge::Mapping> mapping = bridge::map(address, size, /*writable=*/true);
      auto* const data = reinterpret_cast<void*>(mapping->pointer());
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks_.insert_or_assign(data, Block{address, device, std::move(mapping)});
      return data;
    } catch (...) {
      bridge::free(device, address);
      throw;
    }
  }

  std::optional<Block> remove(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = blocks_.extract(data);
    return found.empty() ? std::nullopt : std::optional<Block>(std::move(found.mapped()));
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
};

Blocks& blocks() {
  static auto* const instance = new Blocks; // never destroyed: tensors may outlive every static
  return *instance;
}

c10::Allocator* host_allocator() {
  static c10::Allocator* const allocator = c10::GetDefaultCPUAllocator();
  return allocator;
}

void free_block(Block& block) {
  // Runs in destructors, which must not throw. At worst the memory leaks.
  try {
    bridge::unmap(std::move(block.mapping));
    bridge::free(block.device, block.address);
  } catch (const rust::Error& error) {
    if (!bridge::in_bad_fork()) {
      TORCH_WARN_ONCE("OpenCL: freeing device memory failed: ", message_of(error));
    }
  }
}

void free_mapped(void* data) {
  if (std::optional<Block> block = blocks().remove(data)) free_block(*block);
}

// Frees pointers from `raw_allocate`.
void free_any(void* data) {
  if (std::optional<Block> block = blocks().remove(data)) return free_block(*block);
  host_allocator()->raw_deleter()(data);
}

// PyTorch's CPU allocator, except for large tensors of a thread with MakesDeviceMemory.
class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (device_of_thread == kNone || size < kLeast) return host_allocator()->allocate(size);
    try {
      void* const data = blocks().add(device_of_thread, size);
      return {data, data, &free_mapped, c10::Device(c10::DeviceType::CPU)};
    } catch (const rust::Error& error) {
      if (is_interrupt(error)) raise(error);
      return host_allocator()->allocate(size); // the device has no more memory, the host may have
    }
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &free_any;
  }

  void copy_data(void* target, const void* source, size_t size) const override {
    default_copy_data(target, source, size);
  }
};

const bool registered = [] {
  // Replaces only the default allocator, at its priority. An allocator that a user has set stays.
  if (c10::GetCPUAllocator() == host_allocator()) c10::SetCPUAllocator(new Allocator, /*priority=*/0);
  return true;
}();

} // namespace

MakesDeviceMemory::MakesDeviceMemory(std::optional<c10::Device> device) : outer_(device_of_thread) {
  const bool shares = device.has_value() && device->is_privateuseone() &&
      checked([&] { return bridge::is_host_unified(device->index()); });
  device_of_thread = shares ? device->index() : kNone;
}

MakesDeviceMemory::~MakesDeviceMemory() {
  device_of_thread = outer_;
}

std::optional<at::Tensor> take_device_memory(const at::Tensor& host) {
  if (!host.has_storage() || host.use_count() != 1 || host.storage().use_count() != 1) return std::nullopt;
  c10::DataPtr& data = host.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data.get() == nullptr || data.get_deleter() != &free_mapped) return std::nullopt;
  std::optional<Block> block = blocks().remove(data.get_context());
  if (!block.has_value()) return std::nullopt;
  const size_t bytes = host.storage().nbytes();
  data.release_context();
  const c10::Device device(c10::DeviceType::PrivateUse1, block->device);
  auto* const address = reinterpret_cast<void*>(block->address);
  c10::DataPtr memory(address, address, device_allocator()->raw_deleter(), device);
  checked([&] { bridge::unmap(std::move(block->mapping)); });
  at::Storage storage(at::Storage::use_byte_size_t(), bytes, std::move(memory), device_allocator(), /*resizable=*/true);
  at::Tensor result = at::detail::make_tensor<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), host.dtype());
  auto* const impl = result.unsafeGetTensorImpl();
  impl->set_storage_offset(host.storage_offset());
  impl->set_sizes_and_strides(host.sizes(), host.strides());
  result._set_conj(host.is_conj());
  result._set_neg(host.is_neg());
  return result;
}

} // namespace torch_opencl
