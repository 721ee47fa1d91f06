// Tracer that passes the device's events to Kineto for torch.profiler (ProfilerActivity.PrivateUse1). PyTorch releases
// without the registry of such tracers only have marks in streams: profiler.cpp.

#include <torch/headeronly/version.h>

#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)

// Without this macro the header declares nothing. PyTorch's wheels are built with it.
#define USE_KINETO
// Kineto's headers call fmt, and PyTorch's wheels do not export fmt's functions.
#define FMT_HEADER_ONLY
#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <set>

#include "runtime/error.h"
#include "torch_opencl/rust/bridge/trace.rs.h"

namespace torch_opencl {
namespace {

using libkineto::ActivityType;

ActivityType activity_type(bridge::CommandKind kind) {
  switch (kind) {
    case bridge::CommandKind::Copy:
      return ActivityType::GPU_MEMCPY;
    case bridge::CommandKind::Fill:
      return ActivityType::GPU_MEMSET;
    default:
      return ActivityType::CONCURRENT_KERNEL;
  }
}

// Sizes as JSON. 0, for sizes that the driver chooses, is null.
std::string json(const std::array<size_t, 3>& sizes) {
  if (sizes[0] == 0) return "null";
  std::string text = "[" + std::to_string(sizes[0]);
  for (size_t i = 1; i < sizes.size() && sizes[i] != 0; i++) text += ", " + std::to_string(sizes[i]);
  return text + "]";
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  ~Session() override {
    stop();
  }

  void start() override {
    bridge::start_profile();
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    if (status_ != libkineto::TraceStatus::RECORDING) return;
    status_ = libkineto::TraceStatus::PROCESSING;
    try {
      commands_ = bridge::stop_profile();
    } catch (const rust::Error& error) {
      errors_.emplace_back(message_of(error));
      status_ = libkineto::TraceStatus::ERROR;
    }
  }

  std::vector<std::string> errors() override {
    return errors_;
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, nullptr, 0, 0);
  }

  void processTrace(
      libkineto::ActivityLogger& logger,
      libkineto::getLinkedActivityCallback linked,
      int64_t start,
      int64_t end) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start, end, "opencl");
    buffer_->gpuOpCount = static_cast<int>(commands_.size());
    std::set<std::pair<int32_t, int64_t>> streams;
    uint32_t flow = 0;
    for (const auto& command : commands_) {
      streams.emplace(command.device, command.stream);
      // The flow draws an arrow from the host's call to the command.
      flow++;
      for (const bool is_call : {true, false}) {
        is_call ? add_call(command, linked) : add(command, linked);
        auto& activity = *buffer_->activities.back();
        activity.flow.id = flow;
        activity.flow.type = libkineto::kLinkAsyncCpuGpu;
        activity.flow.start = is_call;
        logger.handleActivity(activity);
      }
    }
    describe(logger, streams, start);
    commands_.clear();
  }

  // processTrace names the devices, as there may be several.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return nullptr;
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    return {};
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(uint64_t id) override {
    bridge::push_correlation(id);
  }

  void popCorrelationId() override {
    bridge::pop_correlation();
  }

 private:
  void add_call(const bridge::DeviceCommand& command, const libkineto::getLinkedActivityCallback& linked) {
    buffer_->emplace_activity(
        buffer_->span, ActivityType::PRIVATEUSE1_RUNTIME, std::string(command.call.data(), command.call.size()));
    auto& activity = *buffer_->activities.back();
    activity.startTime = command.called;
    activity.endTime = std::max(command.called, command.returned);
    activity.device = getpid();
    activity.resource = activity.threadId = static_cast<int32_t>(command.thread);
    activity.id = static_cast<int32_t>(command.correlation);
    if (command.correlation != 0 && linked) activity.linked = linked(activity.id);
  }

  void add(const bridge::DeviceCommand& command, const libkineto::getLinkedActivityCallback& linked) {
    buffer_->emplace_activity(buffer_->span, activity_type(command.kind), std::string(command.name));
    auto& activity = *buffer_->activities.back();
    activity.startTime = command.start;
    activity.endTime = std::max(command.start, command.end);
    activity.device = command.device;
    activity.resource = static_cast<int32_t>(command.stream);
    activity.id = static_cast<int32_t>(command.correlation);
    if (command.correlation != 0 && linked) activity.linked = linked(activity.id);
    activity.addMetadata("device", command.device);
    activity.addMetadata("stream", command.stream);
    if (command.correlation != 0) activity.addMetadata("External id", command.correlation);
    if (command.kind == bridge::CommandKind::Kernel) {
      activity.addMetadata("global size", json(command.global));
      activity.addMetadata("local size", json(command.local));
    } else if (command.bytes != 0) {
      const auto nanoseconds = static_cast<double>(std::max<int64_t>(1, command.end - command.start));
      activity.addMetadata("bytes", command.bytes);
      activity.addMetadata("memory bandwidth (GB/s)", static_cast<double>(command.bytes) / nanoseconds);
    }
  }

  // Names the tracks: a device is shown as a process, a stream as a thread.
  static void describe(
      libkineto::ActivityLogger& logger, const std::set<std::pair<int32_t, int64_t>>& streams, int64_t time) {
    int32_t last = -1;
    for (const auto& [device, stream] : streams) {
      if (device != last) {
        const std::string name = "opencl:" + std::to_string(device);
        logger.handleDeviceInfo({device, device + libkineto::kExceedMaxPid, name, name}, time);
        last = device;
      }
      const std::string name = stream == 0 ? "default stream" : "stream " + std::to_string(stream);
      logger.handleResourceInfo({stream, stream, device, name}, time);
    }
  }

  rust::Vec<bridge::DeviceCommand> commands_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::vector<std::string> errors_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    return name_;
  }

  const std::set<ActivityType>& availableActivities() const override {
    return types_;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config&) override {
    // Profiles of only the host do not request device events.
    const bool is_asked = types.count(ActivityType::CONCURRENT_KERNEL) != 0;
    if (!is_asked || bridge::in_bad_fork() || bridge::device_count() == 0) return nullptr;
    return std::make_unique<Session>();
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& types, const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "opencl";
  const std::set<ActivityType> types_ = {
      ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET, ActivityType::CONCURRENT_KERNEL,
      ActivityType::PRIVATEUSE1_RUNTIME};
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

} // namespace
} // namespace torch_opencl

#endif
