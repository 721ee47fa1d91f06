// Devices, streams and events for c10. torch.Stream, torch.Event and device guards call this implementation.

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "runtime/error.h"

namespace torch_opencl {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr DeviceType static_type = DeviceType::PrivateUse1;

  DeviceType type() const override {
    return static_type;
  }

  Device exchangeDevice(Device device) const override {
    const Device before = getDevice();
    if (device != before) setDevice(device);
    return before;
  }

  Device getDevice() const override {
    return Device(static_type, static_cast<DeviceIndex>(bridge::current_device()));
  }

  void setDevice(Device device) const override {
    TORCH_CHECK(device.type() == static_type, "OpenCL: expected an opencl device, got ", device);
    if (device.has_index()) checked([&] { bridge::set_current_device(device.index()); });
  }

  void uncheckedSetDevice(Device device) const noexcept override {
    // Only restores a device that was current before, so the device exists. A forked child has nothing to restore.
    try {
      if (device.has_index()) bridge::set_current_device(device.index());
    } catch (const rust::Error&) {
    }
  }

  DeviceIndex deviceCount() const noexcept override {
    return static_cast<DeviceIndex>(bridge::device_count());
  }

  c10::DeviceCapability getDeviceCapability(Device device) const override {
    const bool fp64 = checked([&] { return bridge::computes_in_fp64(index_of(device)); });
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& types = capability.capability_data.supported_scalar_types;
    types.has_Bool = types.has_Byte = types.has_Char = types.has_Short = types.has_Int = types.has_Long = true;
    types.has_Half = types.has_BFloat16 = types.has_Float = types.has_ComplexFloat = true;
    types.has_Double = types.has_ComplexDouble = fp64;
    return capability;
  }

  Stream getStream(Device device) const override {
    return make_stream(device, checked([&] { return bridge::current_stream(index_of(device)); }));
  }

  Stream getDefaultStream(Device device) const override {
    return make_stream(device, 0);
  }

  Stream getStreamFromGlobalPool(Device device, bool) const override {
    return make_stream(device, checked([&] { return bridge::pool_stream(index_of(device)); }));
  }

  Stream getNewStream(Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }

  Stream exchangeStream(Stream stream) const override {
    const Stream before = getStream(stream.device());
    checked([&] { bridge::set_current_stream(stream.device_index(), stream.id()); });
    return before;
  }

  void* getStreamNativeHandle(const Stream stream) const override {
    return reinterpret_cast<void*>(checked([&] { return bridge::stream_handle(stream.device_index(), stream.id()); }));
  }

  bool queryStream(const Stream& stream) const override {
    return checked([&] { return bridge::stream_is_idle(stream.device_index(), stream.id()); });
  }

  void synchronizeStream(const Stream& stream) const override {
    checked([&] { bridge::synchronize_stream(stream.device_index(), stream.id()); });
  }

  void synchronizeDevice(const DeviceIndex index) const override {
    checked([&] { bridge::synchronize_device(index); });
  }

  // An event is a boxed marker; recording again replaces it.
  void record(void** event, const Stream& stream, const DeviceIndex index, const c10::EventFlag) const override {
    TORCH_CHECK(
        index == -1 || index == stream.device_index(), "OpenCL: an event of device ", static_cast<int>(index),
        " cannot be recorded on a stream of device ", static_cast<int>(stream.device_index()));
    auto marker = checked([&] { return bridge::record_event(stream.device_index(), stream.id()); });
    destroyEvent(*event, index);
    *event = marker.into_raw();
  }

  void block(void* event, const Stream& stream) const override {
    if (event == nullptr) return;
    checked([&] { as_marker(event)->block(stream.device_index(), stream.id()); });
  }

  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    return checked([&] { return as_marker(event)->is_complete(); });
  }

  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    checked([&] { as_marker(event)->synchronize(); });
  }

  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    TORCH_CHECK(
        start != nullptr && end != nullptr, "OpenCL: both events must be recorded before calculating elapsed time.");
    return checked([&] { return as_marker(start)->elapsed_ms(*as_marker(end)); });
  }

  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    if (event != nullptr) rust::Box<bridge::TimedEvent>::from_raw(as_marker(event));
  }

  void recordDataPtrOnStream(const c10::DataPtr& pointer, const Stream& stream) const override {
    c10::getDeviceAllocator(static_type)->recordStream(pointer, stream);
  }

 private:
  static bridge::TimedEvent* as_marker(void* event) {
    return static_cast<bridge::TimedEvent*>(event);
  }

  DeviceIndex index_of(Device device) const {
    return device.has_index() ? device.index() : getDevice().index();
  }

  Stream make_stream(Device device, int64_t id) const {
    return Stream(Stream::UNSAFE, Device(static_type, index_of(device)), id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

} // namespace
} // namespace torch_opencl
