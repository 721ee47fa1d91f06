// torch.profiler's interface to a device without its own tracer: marks in its stream, and the time between two marks.

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "runtime/error.h"

namespace torch_opencl {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    const int32_t index = bridge::current_device();
    if (device != nullptr) *device = static_cast<c10::DeviceIndex>(index);
    auto marker = checked([&] { return bridge::record_event(index, bridge::current_stream(index)); });
    *event = ProfilerVoidEventStub(marker.into_raw(), [](void* raw) {
      rust::Box<bridge::TimedEvent>::from_raw(static_cast<bridge::TimedEvent*>(raw));
    });
    if (cpu_ns != nullptr) *cpu_ns = c10::getTime();
  }

  // Microseconds.
  float elapsed(const ProfilerVoidEventStub* start, const ProfilerVoidEventStub* end) const override {
    const auto& from = *static_cast<const bridge::TimedEvent*>(start->get());
    const auto& to = *static_cast<const bridge::TimedEvent*>(end->get());
    return checked([&] {
      from.synchronize();
      to.synchronize();
      return static_cast<float>(from.elapsed_ms(to) * 1000);
    });
  }

  // OpenCL has no tool that could show ranges.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}

  bool enabled() const override {
    return true;
  }

  void onEachDevice(std::function<void(int)> call) const override {
    for (int index = 0; index < bridge::device_count(); index++) {
      if (bridge::is_initialized(index)) call(index);
    }
  }

  void synchronize() const override {
    checked([] { bridge::synchronize_device(bridge::current_device()); });
  }
};

const bool registered = [] {
  // Never destroyed: PyTorch keeps the pointer for the life of the process.
  torch::profiler::impl::registerPrivateUse1Methods(new Stubs);
  return true;
}();

} // namespace
} // namespace torch_opencl
