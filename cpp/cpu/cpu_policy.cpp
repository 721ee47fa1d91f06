#include "cpu/cpu_policy.h"

#include "runtime/bridge.h"
#include "runtime/error.h"

namespace torch_opencl::cpu_policy {
namespace {

// The fewest elements of a large call.
constexpr int64_t kMinLarge = int64_t{1} << 16;
constexpr int64_t kMinLanes = 16;

} // namespace

bool runs_on_cpu(CpuCalls calls, const at::TensorBase& tensor, int64_t lanes) {
  if (calls == CpuCalls::None) return false;
  if (calls != CpuCalls::Always && tensor.numel() < kMinLarge) return false;
  if (calls == CpuCalls::FewLanes && lanes >= kMinLanes) return false;
  return checked([&] { return bridge::is_host_cpu(tensor.get_device()); });
}

} // namespace torch_opencl::cpu_policy
