#include "cpu/cpu_policy.h"

#include "runtime/bridge.h"
#include "runtime/error.h"

namespace torch_opencl::cpu_policy {
namespace {

// The fewest elements of a large call.
constexpr int64_t kMinLarge = int64_t{1} << 16;
// Lanes of a vector. Our kernels use one for each channel, or each row of a scatter.
constexpr int64_t kMinLanes = 16;

} // namespace

bool runs_on_cpu(CpuCalls calls, const at::TensorBase& tensor, int64_t elements) {
  if (calls == CpuCalls::None || (calls == CpuCalls::Large && elements < kMinLarge)) return false;
  return checked([&] { return bridge::is_host_cpu(tensor.get_device()); });
}

bool has_few_lanes(const at::TensorBase& tensor, int64_t elements, int64_t lanes) {
  return lanes < kMinLanes && runs_on_cpu(CpuCalls::Large, tensor, elements);
}

} // namespace torch_opencl::cpu_policy
