#include "dispatch/fallback_arguments.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include "runtime/generator.h"

namespace torch_opencl {
namespace {

// _ctc_loss(log_probs, targets, input_lengths, target_lengths, ...): the used targets must be valid labels. Shapes that
// do not fit together are left to the CPU kernel, which checks them.
void check_ctc_targets(const at::Tensor& log_probs, const at::Tensor& targets, const at::Tensor& lengths) {
  if (log_probs.dim() != 3 || lengths.dim() != 1 || lengths.numel() == 0 || targets.numel() == 0) return;
  at::Tensor used;
  if (targets.dim() == 2 && targets.size(0) == lengths.numel()) {
    used = targets.masked_select(at::arange(targets.size(1)).unsqueeze(0).lt(lengths.unsqueeze(1)));
  } else if (targets.dim() == 1) {
    const auto total = lengths.sum().item<int64_t>();
    used = targets.narrow(0, 0, std::min(std::max<int64_t>(total, 0), targets.numel()));
  }
  if (!used.defined() || used.numel() == 0) return;
  const auto [least, greatest] = used.aminmax();
  for (const at::Tensor& target : {least, greatest}) {
    const auto number = target.item<int64_t>();
    TORCH_CHECK_INDEX(
        number >= 0 && number < log_probs.size(2), "ctc_loss: Target ", number, " is out of bounds: there are ",
        log_probs.size(2), " labels.");
  }
}

} // namespace

at::Generator host_generator(const at::Generator& generator, c10::Device device) {
  const c10::DeviceType given = generator.device().type();
  TORCH_CHECK(
      given == device.type(), "Expected a '", device.type(), "' device type for generator but found '", given, "'");
  const PhiloxArgs part = philox(generator, device, 1);
  // Seeds of neighbouring offsets must not be neighbours (the multiplier is 2^64 divided by the golden ratio).
  return at::detail::createCPUGenerator(part.seed ^ ((part.offset + 1) * 0x9e3779b97f4a7c15u));
}

void check_host_arguments(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  if (name == "aten::_linalg_eigvals" || name == "aten::linalg_eigvals.out") {
    // With NaN inputs, MKL's geev accesses memory out of bounds if it computes no vectors.
    TORCH_CHECK(
        arguments[0].toTensor().isfinite().all().item<bool>(),
        "torch.linalg.eigvals: input tensor should not contain infs or NaNs.");
  }
  if (name != "aten::_ctc_loss" && name != "aten::_ctc_loss.Tensor") return;
  const c10::IValue& lengths = arguments[3];
  check_ctc_targets(
      arguments[0].toTensor(), arguments[1].toTensor(),
      lengths.isTensor() ? lengths.toTensor() : at::tensor(lengths.toIntVector()));
}

} // namespace torch_opencl
