// Faults, counters and CUDA's streams. All parts of the stub use them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace {

using Status = int;
using Address = uint64_t;
constexpr Status SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801;
constexpr size_t GRANULARITY = 2 << 20;
constexpr int64_t MEMORY = 256 << 20;
constexpr char UUID[16] = "CUDA stub, 15 b";
constexpr char EXTENSIONS[] = " cl_khr_external_memory cl_khr_external_memory_opaque_fd cl_khr_device_uuid";

bool fails(const char* fault) {
  const char* chosen = std::getenv("STUB_FAULT");
  return chosen != nullptr && std::strcmp(chosen, fault) == 0;
}

std::atomic<int64_t> live_allocations, live_bytes, imports, acquired, gemms, biases, live_objects;
constexpr auto LATENCY = std::chrono::milliseconds(1), SHORT = std::chrono::milliseconds(0);

/// Commands in order, each after a short delay.
class Stream {
 public:
  Stream() : thread_([this] { run(); }) { thread_.detach(); }

  void add(std::function<void()> command, std::chrono::milliseconds latency = LATENCY) {
    std::lock_guard lock(mutex_);
    commands_.push_back([=] {
      std::this_thread::sleep_for(latency);
      command();
    });
    changed_.notify_all();
  }

  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return commands_.empty(); });
  }

  /// The error of an earlier command.
  std::atomic<Status> status = SUCCESS;

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !commands_.empty(); });
      std::function<void()> command = commands_.front();
      lock.unlock();
      command();
      lock.lock();
      commands_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> commands_;
  std::thread thread_;
};

thread_local void* current_context = nullptr;
int the_context = 0;

template <typename T>
T* pointer(Address address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace
