// Operators of torchvision, for programs that import it.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "dispatch/fallback.h"
#include "dispatch/registration.h"

namespace torch_opencl::native {
namespace {

// In float32 under autocast, as torchvision has it on other devices. The result has the dtype of the first argument.
void autocast_to_float32(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const auto dtype = arguments[0].toTensor().scalar_type();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = first; i < stack->size(); i++) {
    c10::IValue& argument = (*stack)[i];
    if (argument.isTensor()) {
      argument = at::autocast::cached_cast(at::kFloat, argument.toTensor(), at::kPrivateUse1);
    }
  }
  op.callBoxed(stack);
  for (size_t i = first; i < stack->size(); i++) {
    c10::IValue& result = (*stack)[i];
    if (result.isTensor() && result.toTensor().is_floating_point()) result = result.toTensor().to(dtype);
  }
}

} // namespace
} // namespace torch_opencl::native

// Operators that always run as torchvision's CPU functions on the host: non-maximum suppression, which visits the boxes
// one by one, and operators that few models use.
TORCH_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  for (const char* op :
       {"nms", "roi_pool", "_roi_pool_backward", "ps_roi_align", "_ps_roi_align_backward", "ps_roi_pool",
        "_ps_roi_pool_backward", "deform_conv2d", "_deform_conv2d_backward"}) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&torch_opencl::host_kernel>());
  }
  constexpr auto bit = [](at::ScalarType dtype) { return uint64_t{1} << static_cast<unsigned>(dtype); };
  constexpr torch_opencl::DtypeSet kDtypes = bit(at::kFloat) | bit(at::kDouble) | bit(at::kHalf);
  constexpr torch_opencl::OpRow kRow{.dtypes = kDtypes, .cpu = torch_opencl::CpuCalls::Always, .cpu_dtypes = kDtypes};
  using at::Tensor;
  using torch_opencl::OpInfo;
  using RoiAlign = Tensor(const Tensor&, const Tensor&, double, int64_t, int64_t, int64_t, bool);
  using RoiAlignBackward =
      Tensor(const Tensor&, const Tensor&, double, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool);
  // torch_opencl/composites/vision.py
  using Python = torch_opencl::form::Python;
  torch_opencl::register_entry<Python>(
      m, "roi_align", new OpInfo(kRow, "torchvision::roi_align", ""), static_cast<RoiAlign*>(nullptr));
  torch_opencl::register_entry<Python>(
      m, "_roi_align_backward", new OpInfo(kRow, "torchvision::_roi_align_backward", ""),
      static_cast<RoiAlignBackward*>(nullptr));
}

TORCH_LIBRARY_IMPL(torchvision, AutocastPrivateUse1, m) {
  for (const char* op : {"nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"}) {
    m.impl(op, torch::CppFunction::makeFromBoxedFunction<&torch_opencl::native::autocast_to_float32>());
  }
}
