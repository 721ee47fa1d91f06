#include "registration.h"

#include <ATen/MemoryOverlap.h>

namespace torch_opencl {

void ArgumentCheck::look(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  // A 0-dim tensor may come from the host, as everywhere in PyTorch.
  const bool is_number = !tensor.is_privateuseone() && tensor.dim() == 0;
  if (!crosses_devices_ && !is_number) devices_.add(tensor.device());
  const auto code = static_cast<unsigned>(tensor.scalar_type());
  supported_ = supported_ && code < 61 && ((dtypes_ >> code) & 1u) != 0;
}

void Promotion::look(const at::Tensor& input) {
  if (!input.defined() || !is_loadable_) return;
  is_loadable_ = has(kLoadable, input.scalar_type());
  // PyTorch refuses to promote some of the others.
  if (is_loadable_) state_ = at::native::update_result_type_state(input, state_);
}

void ArgumentCheck::check_generator() const {
  if (!generator_.has_value() || !devices_.device().has_value()) return;
  const c10::DeviceType expected = devices_.device()->type();
  TORCH_CHECK(
      expected == *generator_, "Expected a '", expected, "' device type for generator but found '", *generator_, "'");
}

void ArgumentCheck::check_overlap(const at::Tensor& output) {
  if (output.defined() && output.layout() == at::kStrided) at::assert_no_internal_overlap(output);
}

void ArgumentCheck::look(const c10::List<std::optional<at::Tensor>>& indices) {
  for (const std::optional<at::Tensor>& index : indices) {
    if (index.has_value() && index->is_privateuseone()) devices_.add(index->device());
  }
}

} // namespace torch_opencl
