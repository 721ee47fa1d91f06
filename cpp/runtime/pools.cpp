// Memory pools for the Python package, and streams on external queues.

#include <torch/library.h>
#include <array>
#include <tuple>

#include "runtime/error.h"
#include "runtime/library.h"
#include "torch_opencl/rust/bridge/interop.rs.h"

namespace torch_opencl {
namespace {

using Pool = std::tuple<int64_t, int64_t>;

std::array<uint64_t, 2> mempool_id(int64_t first, int64_t second) {
  return {static_cast<uint64_t>(first), static_cast<uint64_t>(second)};
}

Pool open_pool(bool use_on_oom, bool no_split) {
  const auto pool = bridge::open_pool(use_on_oom, no_split);
  return {static_cast<int64_t>(pool[0]), static_cast<int64_t>(pool[1])};
}

TORCH_LIBRARY_FRAGMENT(torch_opencl, m) {
  m.def("open_pool(bool use_on_oom, bool no_split) -> (int, int)", &open_pool);
  m.def("close_pool(int first, int second) -> ()", [](int64_t first, int64_t second) {
    checked([&] { bridge::close_pool(mempool_id(first, second)); });
  });
  m.def("enter_pool(int device, int first, int second) -> ()", [](int64_t device, int64_t first, int64_t second) {
    checked([&] { bridge::enter_pool(device_index(device), mempool_id(first, second)); });
  });
  m.def("leave_pool(int device, int first, int second) -> ()", [](int64_t device, int64_t first, int64_t second) {
    bridge::leave_pool(device_index(device), mempool_id(first, second));
  });
  m.def("adopt_queue(int device, int queue) -> int", [](int64_t device, int64_t queue) {
    return checked([&] { return bridge::adopt_queue(device_index(device), static_cast<size_t>(queue)); });
  });
}

} // namespace
} // namespace torch_opencl
