#include "dispatch/route.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/TypeProperties.h>
#include <algorithm>

#include "cpu/cpu_policy.h"
#include "runtime/bridge.h"
#include "runtime/device_check.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"

namespace torch_opencl {
namespace {

using Use = TensorArg::Use;

// Dtypes that kernels with type promotion can load: bool, and the usual integers, floats and complex numbers.
constexpr DtypeSet kLoadable = 0x8eff;

bool takes_cpu(const OpInfo& op, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return false;
  const at::ScalarType dtype = tensor.scalar_type();
  if (op.cpu_dtypes.contains(dtype) && cpu_policy::runs_on_cpu(op.cpu, tensor)) return true;
  // Such ops run on the CPU also where the kernel or the device lacks the dtype.
  if (op.cpu != CpuCalls::Always) return false;
  if (!op.dtypes.contains(dtype)) return true;
  const bool is_double = dtype == at::kDouble || dtype == at::kComplexDouble;
  return is_double && checked([&] { return !bridge::computes_in_fp64(tensor.get_device()); });
}

// Checks the arguments, and returns true if the kernel supports all dtypes.
bool check(const OpInfo& op, const TensorArgs& args) {
  DeviceCheck devices(op.name);
  bool supported = true;
  for (const auto [tensor, use] : args.tensors()) {
    if (use == Use::Index) {
      // Indices may be on the host, in any dtype that ATen accepts: it moves them.
      if (tensor->is_privateuseone()) devices.add(tensor->device());
      continue;
    }
    const bool is_output = use == Use::Output;
    // Unlike an input, a 0-dim output must not be on the host.
    if (is_output && !op.crosses_devices) devices.add(tensor->device());
    if (is_output || (use == Use::Listed && op.is_inplace)) materialize(*tensor);
    if (!tensor->defined()) continue;
    // A 0-dim tensor may be on the host, as everywhere in PyTorch.
    const bool is_number = !tensor->is_privateuseone() && tensor->dim() == 0;
    if (!op.crosses_devices && !is_number) devices.add(tensor->device());
    supported = supported && op.dtypes.contains(tensor->scalar_type());
    // In-place ops have their own rules.
    if (is_output && !op.is_inplace && tensor->layout() == at::kStrided) at::assert_no_internal_overlap(*tensor);
  }
  // Calls whose tensors are all on the host arrive here if they have a generator of this device.
  if (args.generator().has_value() && devices.device().has_value()) {
    const c10::DeviceType expected = devices.device()->type();
    TORCH_CHECK(
        expected == *args.generator(), "Expected a '", expected, "' device type for generator but found '",
        *args.generator(), "'");
  }
  devices.require_device();
  return supported;
}

// Returns true if the kernel supports the dtype that PyTorch promotes the inputs to, and the outputs' dtypes. An
// in-place op also promotes the tensor that it writes to.
bool takes_promoted(const OpInfo& op, const TensorArgs& args) {
  at::native::ResultTypeState state;
  for (const auto [tensor, use] : args.tensors()) {
    if (use == Use::Input || (use == Use::Output && op.is_inplace)) {
      if (!tensor->defined()) continue;
      // PyTorch raises when it promotes some dtypes that are not loadable.
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
