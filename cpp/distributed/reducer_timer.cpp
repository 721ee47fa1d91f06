// Times of DistributedDataParallel's steps on the device.

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <array>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

namespace torch_opencl {
namespace {

class Timer final : public c10d::Timer {
 public:
  explicit Timer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    c10d::Timer::record(event);
    const c10::impl::VirtualGuardImpl guard(device_.type());
    events_.at(static_cast<size_t>(event)).record(guard.getStream(device_));
  }

  // In nanoseconds; nullopt if a step had no backward.
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const c10::Event& first = events_.at(static_cast<size_t>(start));
    const c10::Event& last = events_.at(static_cast<size_t>(end));
    if (!first.was_marked_for_recording() || !last.was_marked_for_recording()) return std::nullopt;
    first.synchronize();
    last.synchronize();
    const auto nanoseconds = static_cast<int64_t>(first.elapsedTime(last) * 1e6);
    // Negative if the end event is from an earlier step: the difference is unknown.
    if (nanoseconds < 0) return std::nullopt;
    return nanoseconds;
  }

 private:
  c10::Device device_;
  std::array<c10::Event, 5> events_{made(), made(), made(), made(), made()};

  static c10::Event made() {
    return {c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT};
  }
};

using c10d::RegistererTimerRegistry;
using c10d::TimerRegistry;
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, Timer);

} // namespace
} // namespace torch_opencl
