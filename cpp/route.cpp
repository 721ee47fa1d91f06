#include "route.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/TypeProperties.h>
#include <algorithm>

#include "bridge.h"
#include "device_check.h"
#include "error.h"
#include "host_on_cpu.h"
#include "tensor_arg.h"

namespace torch_opencl {
namespace {

using Use = TensorArg::Use;

// Elements of a tensor from which a call takes longer than waiting for a queue (some 50 us, PoCL, 2 cores).
constexpr int64_t kMinLarge = int64_t{1} << 16;

// Dtypes that a kernel which promotes can load: bool, and the usual integers, floats and complex numbers.
constexpr DtypeSet kLoadable = 0x8eff;

bool takes_cpu(const OpInfo& op, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return false;
  const at::ScalarType dtype = tensor.scalar_type();
  if (op.cpu == CpuCalls::Large) {
    return tensor.numel() >= kMinLarge && op.cpu_dtypes.contains(dtype) && is_host_cpu(tensor);
  }
  if (!op.dtypes.contains(dtype) || (op.cpu_dtypes.contains(dtype) && is_host_cpu(tensor))) return true;
  const bool is_double = dtype == at::kDouble || dtype == at::kComplexDouble;
  return is_double && checked([&] { return !bridge::computes_in_fp64(tensor.get_device()); });
}

// Makes the checks, and returns true if the kernel takes all dtypes.
bool check(const OpInfo& op, const TensorArgs& args) {
  DeviceCheck devices(op.name);
  bool supported = true;
  for (const auto [tensor, use] : args.tensors()) {
    if (use == Use::Index) {
      // Indices, of any dtype that ATen accepts, may come from the host: it moves them.
      if (tensor->is_privateuseone()) devices.add(tensor->device());
      continue;
    }
    const bool is_output = use == Use::Output;
    // An output is not a number from the host, however small.
    if (is_output && !op.crosses_devices) devices.add(tensor->device());
    if (is_output || (use == Use::Listed && op.is_inplace)) materialize(*tensor);
    if (!tensor->defined()) continue;
    // A 0-dim tensor may come from the host, as everywhere in PyTorch.
    const bool is_number = !tensor->is_privateuseone() && tensor->dim() == 0;
    if (!op.crosses_devices && !is_number) devices.add(tensor->device());
    supported = supported && op.dtypes.contains(tensor->scalar_type());
    // In-place ops have rules of their own.
    if (is_output && !op.is_inplace && tensor->layout() == at::kStrided) at::assert_no_internal_overlap(*tensor);
  }
  // A generator of this device brings calls here whose tensors are all on the host.
  if (args.generator().has_value() && devices.device().has_value()) {
    const c10::DeviceType expected = devices.device()->type();
    TORCH_CHECK(
        expected == *args.generator(), "Expected a '", expected, "' device type for generator but found '",
        *args.generator(), "'");
  }
  devices.require_device();
  return supported;
}

// Returns true if the kernel takes the dtype that PyTorch promotes the inputs to, and those of the outputs. An in-place
// op promotes what it writes to, too.
bool takes_promoted(const OpInfo& op, const TensorArgs& args) {
  at::native::ResultTypeState state;
  for (const auto [tensor, use] : args.tensors()) {
    if (use == Use::Input || (use == Use::Output && op.is_inplace)) {
      if (!tensor->defined()) continue;
      // PyTorch raises for the promotion of some dtypes that are not loadable.
      if (!kLoadable.contains(tensor->scalar_type())) return false;
      state = at::native::update_result_type_state(*tensor, state);
    }
    if (use == Use::Output && !op.dtypes.contains(tensor->scalar_type())) return false;
  }
  return op.dtypes.contains(at::native::result_type(state));
}

} // namespace

Route route(const OpInfo& op, const TensorArgs& args) {
  const auto& tensors = args.tensors();
  if (op.cpu != CpuCalls::None &&
      std::any_of(tensors.begin(), tensors.end(), [&](const TensorArg& arg) { return takes_cpu(op, *arg.tensor); })) {
    return Route::Cpu;
  }
  if (!check(op, args) && !(op.promotes && takes_promoted(op, args))) return Route::Fallback;
  return op.small == SmallCalls::Kernel ? Route::Kernel : Route::SmallCall;
}

} // namespace torch_opencl
