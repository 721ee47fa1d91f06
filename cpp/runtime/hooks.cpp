// Hooks that PyTorch's generic code (torch.accelerator, pinning, autograd, generators) calls.

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include "runtime/allocator.h"
#include "runtime/error.h"
#include "runtime/generator.h"

namespace torch_opencl {
namespace {

using c10::DeviceIndex;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }

  bool isAvailable() const override {
    return bridge::device_count() > 0;
  }

  void init() const override {
    checked([] { bridge::initialize(bridge::current_device()); });
  }

  bool hasPrimaryContext(DeviceIndex index) const override {
    return bridge::is_initialized(index);
  }

  DeviceIndex deviceCount() const override {
    return static_cast<DeviceIndex>(bridge::device_count());
  }

  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(bridge::current_device());
  }

  void setCurrentDevice(DeviceIndex index) const override {
    checked([&] { bridge::set_current_device(index); });
  }

  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    const DeviceIndex before = getCurrentDevice();
    if (index >= 0) setCurrentDevice(index);
    return before;
  }

  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override {
    return exchangeDevice(index);
  }

  at::Device getDeviceFromPtr(void* data) const override {
    const auto index = checked([&] { return bridge::device_of_address(reinterpret_cast<size_t>(data)); });
    return at::Device(at::DeviceType::PrivateUse1, static_cast<DeviceIndex>(index));
  }

  bool isPinnedPtr(const void* data) const override {
    return bridge::is_pinned(reinterpret_cast<size_t>(data));
  }

  at::Allocator* getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }

  const at::Generator& getDefaultGenerator(DeviceIndex index) const override {
    return default_generator(index);
  }

  at::Generator getNewGenerator(DeviceIndex index) const override {
    return make_generator(index);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override;
};

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const {
  auto* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(storage.device());
  at::DataPtr fresh = device_allocator()->allocate(size);
  const size_t kept = std::min(size, storage.nbytes());
  if (kept > 0) device_allocator()->copy_data(fresh.get(), storage.data(), kept);
  impl->set_data_ptr_noswap(std::move(fresh));
  impl->set_nbytes(size);
}

const bool registered = [] {
  // Never destroyed: PyTorch keeps the pointer for the life of the process.
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

} // namespace
} // namespace torch_opencl
