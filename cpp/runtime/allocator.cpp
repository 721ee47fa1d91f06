#include "runtime/allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/util/Exception.h>
#include <algorithm>

#include "runtime/autograd_threads.h"
#include "runtime/error.h"
#include "runtime/memory_history.h"

namespace torch_opencl {
namespace {

// Reports allocated bytes to torch.profiler, or freed bytes if `bytes` is negative.
void report_to_profiler(size_t address, int64_t bytes, int32_t index) {
  const auto stats = bridge::memory_stats(index);
  const auto current = [&](const char* name) {
    const auto stat =
        std::find_if(stats.begin(), stats.end(), [&](const auto& each) { return each.name == rust::Str(name); });
    return stat == stats.end() ? 0 : stat->current;
  };
  c10::reportMemoryUsageToProfiler(
      reinterpret_cast<void*>(address), bytes, current("allocated_bytes"), current("reserved_bytes"),
      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)));
}

// Reports an allocated block to the profiler and to the memory history.
void report(int32_t index, size_t address) {
  const size_t bytes = bridge::block_size(index, address);
  if (c10::memoryProfilingEnabled()) report_to_profiler(address, static_cast<int64_t>(bytes), index);
  if (records_memory()) record_allocation(index, address, bytes, bridge::current_stream(index));
}

void free_device(void* address) {
  // Runs in destructors, which must not throw. At worst the memory leaks.
  try {
    const auto at = reinterpret_cast<size_t>(address);
    const int32_t index = bridge::device_of_address(at);
    const bool is_profiled = c10::memoryProfilingEnabled();
    const size_t bytes = is_profiled || records_memory() ? bridge::block_size(index, at) : 0;
    // Recorded first: after the free another tensor may get the block.
    if (records_memory()) record_free(index, at, bytes);
    bridge::free(index, at);
    if (is_profiled) report_to_profiler(at, -static_cast<int64_t>(bytes), index);
  } catch (const rust::Error& error) {
    if (!bridge::in_bad_fork()) {
      TORCH_WARN_ONCE("OpenCL: freeing device memory failed: ", message_of(error));
    }
  }
}

c10::CachingAllocator::Stat to_stat(const bridge::NamedStat& stat) {
  c10::CachingAllocator::Stat result;
  result.current = stat.current;
  result.peak = stat.peak;
  result.allocated = stat.allocated;
  result.freed = stat.freed;
  return result;
}

class Allocator final : public c10::DeviceAllocator {
 public:
  // Allocates on the current stream of the current device.
  c10::DataPtr allocate(size_t size) override {
    const auto index = static_cast<c10::DeviceIndex>(bridge::current_device());
    const c10::Device device(c10::DeviceType::PrivateUse1, index);
    if (size == 0) return {nullptr, device};
    const size_t address = checked([&] { return bridge::allocate(index, size); });
    // A thread that creates a tensor may start a backward pass.
    [[maybe_unused]] static thread_local const bool is_first = (keep_backward_in_thread(index), true);
    if (c10::memoryProfilingEnabled() || records_memory()) {
      checked([&] { report(index, address); });
    }
    auto* data = reinterpret_cast<void*>(address);
    return {data, data, &free_device, device};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &free_device;
  }

  void copy_data(void* target, const void* source, size_t size) const override {
    if (size == 0) return;
    checked([&] {
      bridge::copy_device_to_device(reinterpret_cast<size_t>(target), reinterpret_cast<size_t>(source), size);
    });
  }

  bool initialized() override {
    return bridge::device_count() > 0;
  }

  // Empties one pool; without a pool all, except open pools that the calling thread does not allocate in.
  void emptyCache(c10::MempoolId_t pool) override {
    const bool is_one = pool != c10::MempoolId_t{0, 0};
    for (int32_t index = 0; index < bridge::device_count(); index++) {
      checked([&] { is_one ? bridge::empty_pool(index, {pool.first, pool.second}) : bridge::empty_cache(index); });
    }
  }

  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    if (pointer.get() == nullptr) return;
    // The block starts where the allocation does, which is the context, not the data of a view.
    const auto address = reinterpret_cast<size_t>(pointer.get_context());
    checked([&] { bridge::record_stream(pointer.device().index(), address, stream.id()); });
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto named = checked([&] { return bridge::memory_stats(device); });
    // The order is that of MemoryStats::named in rust/runtime/stats.rs.
    c10::CachingAllocator::StatArray* fields[] = {
        &stats.allocation,      &stats.segment,        &stats.active,       &stats.inactive_split,
        &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes,
        &stats.requested_bytes};
    constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    for (size_t i = 0; i < named.size(); i++) (*fields[i])[kAggregate] = to_stat(named[i]);
    const auto counters = checked([&] { return bridge::memory_counters(device); });
    stats.num_alloc_retries = counters[0];
    stats.num_ooms = counters[1];
    stats.num_device_alloc = counters[2];
    stats.num_device_free = counters[3];
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    checked([&] { bridge::reset_accumulated_stats(device); });
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    checked([&] { bridge::reset_peak_stats(device); });
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto info = checked([&] { return bridge::memory_info(device); });
    return {info.free, info.total};
  }
};

void free_pinned(void* address) {
  bridge::free_pinned(reinterpret_cast<size_t>(address));
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    auto* data = reinterpret_cast<void*>(checked([&] { return bridge::allocate_pinned(size); }));
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &free_pinned;
  }

  void copy_data(void* target, const void* source, size_t size) const override {
    default_copy_data(target, source, size);
  }

  // Copies themselves record the streams that use a block.
  bool record_event(void* data, void*, c10::Stream stream) override {
    const auto address = reinterpret_cast<size_t>(data);
    if (!bridge::is_pinned(address)) return false;
    checked([&] { bridge::record_pinned(address, stream.device_index(), stream.id()); });
    return true;
  }

  void empty_cache() override {
    checked([] { bridge::empty_pinned_cache(); });
  }

  at::HostStats get_stats() override {
    at::HostStats stats;
    // The order is that of HostMemoryStats::named in rust/runtime/stats.rs.
    c10::CachingAllocator::Stat* fields[] = {
        &stats.allocations, &stats.allocated_bytes, &stats.active_requests, &stats.active_bytes};
    const auto named = bridge::host_memory_stats();
    for (size_t i = 0; i < named.size(); i++) *fields[i] = to_stat(named[i]);
    stats.num_host_alloc = stats.allocations.allocated;
    stats.num_host_free = stats.allocations.freed;
    return stats;
  }

  void reset_accumulated_stats() override {
    bridge::reset_accumulated_host_stats();
  }

  void reset_peak_stats() override {
    bridge::reset_peak_host_stats();
  }
};

// Never destroyed: tensors may outlive every static.
Allocator* const the_allocator = new Allocator;
PinnedAllocator* const the_pinned_allocator = new PinnedAllocator;

} // namespace

c10::DeviceAllocator* device_allocator() {
  return the_allocator;
}

c10::Allocator* pinned_allocator() {
  return the_pinned_allocator;
}

static const bool registered = [] {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, device_allocator());
  at::setHostAllocator(c10::DeviceType::PrivateUse1, the_pinned_allocator);
  return true;
}();

} // namespace torch_opencl
