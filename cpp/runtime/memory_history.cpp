#include "runtime/memory_history.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/library.h>
#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace torch_opencl {
namespace {

struct HistoryEntry {
  bool is_free;
  int32_t device;
  int64_t address;
  int64_t bytes;
  int64_t stream;
  // Microseconds since 1970.
  int64_t time;
  std::shared_ptr<torch::CapturedTraceback> stack;
};

class History {
 public:
  // Starts recording, and keeps the latest `most` entries. If `most` is 0, stops recording.
  void start(int64_t most, bool with_stacks, bool with_free_stacks) {
    const std::lock_guard lock(mutex_);
    most_ = static_cast<size_t>(std::max<int64_t>(most, 0));
    with_stacks_ = with_stacks;
    with_free_stacks_ = with_free_stacks;
    is_on_.store(most > 0, std::memory_order_relaxed);
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    entries_.clear();
    streams_.clear();
  }

  bool is_on() const {
    return is_on_.load(std::memory_order_relaxed);
  }

  void add(HistoryEntry entry) {
    // Gathering the stack takes the GIL, so it must not happen while our mutex is held.
    if (entry.is_free ? with_free_stacks_.load() : with_stacks_.load()) {
      entry.stack = torch::CapturedTraceback::gather(true, false, false);
    }
    entry.time = c10::getTime() / 1000;
    std::deque<HistoryEntry> dropped;
    const std::lock_guard lock(mutex_);
    if (entry.is_free) {
      if (const auto found = streams_.find(entry.address); found != streams_.end()) {
        entry.stream = found->second;
        streams_.erase(found);
      }
    } else {
      streams_[entry.address] = entry.stream;
    }
    entries_.push_back(std::move(entry));
    while (entries_.size() > most_) {
      dropped.push_back(std::move(entries_.front()));
      entries_.pop_front();
    }
  }

  std::deque<HistoryEntry> entries() {
    const std::lock_guard lock(mutex_);
    return entries_;
  }

 private:
  std::mutex mutex_;
  std::deque<HistoryEntry> entries_;
  // Stream of each allocated block.
  std::unordered_map<int64_t, int64_t> streams_;
  size_t most_ = 0;
  std::atomic<bool> is_on_ = false;
  std::atomic<bool> with_stacks_ = false;
  std::atomic<bool> with_free_stacks_ = false;
};

// Never destroyed: tensors may outlive every static.
History& history() {
  static auto* const the_history = new History;
  return *the_history;
}

// Returns for each entry: is_free, device, address, bytes, stream, time, number of frames, and the frames. Then the
// frames' files, names and lines.
std::tuple<std::vector<int64_t>, std::vector<std::string>, std::vector<std::string>, std::vector<int64_t>> entries() {
  const auto all = history().entries();
  std::vector<torch::CapturedTraceback*> stacks;
  for (const auto& entry : all) {
    if (entry.stack) stacks.push_back(entry.stack.get());
  }
  const auto symbols = torch::symbolize(stacks);
  std::vector<int64_t> fields;
  size_t next = 0;
  for (const auto& entry : all) {
    fields.insert(fields.end(), {entry.is_free, entry.device, entry.address, entry.bytes, entry.stream, entry.time});
    if (!entry.stack) {
      fields.push_back(0);
      continue;
    }
    const auto& frames = symbols.tracebacks[next++];
    fields.push_back(static_cast<int64_t>(frames.size()));
    fields.insert(fields.end(), frames.begin(), frames.end());
  }
  std::vector<std::string> files, names;
  std::vector<int64_t> lines;
  for (const auto& frame : symbols.all_frames) {
    files.push_back(frame.filename);
    names.push_back(frame.funcname);
    lines.push_back(static_cast<int64_t>(frame.lineno));
  }
  return {fields, files, names, lines};
}

} // namespace

bool records_memory() {
  return history().is_on();
}

void record_allocation(int32_t device, size_t address, size_t bytes, int64_t stream) {
  history().add({false, device, static_cast<int64_t>(address), static_cast<int64_t>(bytes), stream, 0, nullptr});
}

void record_free(int32_t device, size_t address, size_t bytes) {
  history().add({true, device, static_cast<int64_t>(address), static_cast<int64_t>(bytes), 0, 0, nullptr});
}

TORCH_LIBRARY_FRAGMENT(torch_opencl, m) {
  m.def(
      "record_memory_history(int most, bool stacks, bool free_stacks) -> ()",
      [](int64_t most, bool stacks, bool free_stacks) { history().start(most, stacks, free_stacks); });
  m.def("clear_memory_history() -> ()", [] { history().clear(); });
  m.def("memory_history() -> (int[] entries, str[] files, str[] names, int[] lines)", &entries);
}

} // namespace torch_opencl
