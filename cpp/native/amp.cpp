#include "entries/composite.h"

#include <ATen/Functions.h>

namespace torch_opencl::native {
namespace {

void check_float_scalar(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(
      tensor.numel() == 1 && tensor.scalar_type() == at::kFloat, name, " must be one float, got ", tensor.sizes(),
      " of ", tensor.scalar_type());
}

} // namespace

// Multiplies all gradients by `inv_scale`; sets `found_inf` to 1 if one held an infinity or a NaN.
void _amp_foreach_non_finite_check_and_unscale_(
    at::TensorList grads, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  check_float_scalar(found_inf, "found_inf");
  check_float_scalar(inv_scale, "inv_scale");
  for (const at::Tensor& grad : grads) {
    TORCH_CHECK(grad.is_floating_point(), "gradients to unscale must be floating point, got ", grad.scalar_type());
    // Zero times anything finite is zero; times an infinity or a NaN it is NaN, and so is the sum then.
    const at::Tensor probe = at::sum(at::mul(grad, 0.0), at::kFloat);
    const at::Tensor overflow = at::ne(probe, probe).to(at::kFloat).reshape(found_inf.sizes());
    at::maximum_out(found_inf, found_inf, overflow);
    at::Tensor(grad).mul_(inv_scale.reshape({}));
  }
}

// Lowers the scale after an overflow, raises it after `growth_interval` steps without one.
at::Tensor& _amp_update_scale_(
    at::Tensor& scale,
    at::Tensor& growth_tracker,
    const at::Tensor& found_inf,
    double growth_factor,
    double backoff_factor,
    int64_t growth_interval) {
  check_float_scalar(scale, "scale");
  check_float_scalar(found_inf, "found_inf");
  TORCH_CHECK(
      growth_tracker.numel() == 1 && growth_tracker.scalar_type() == at::kInt, "growth_tracker must be one int, got ",
      growth_tracker.sizes(), " of ", growth_tracker.scalar_type());
  const at::Tensor overflow = at::ne(found_inf, 0).reshape(scale.sizes());
  const at::Tensor steps = at::add(growth_tracker, 1).reshape(scale.sizes());
  const at::Tensor due = at::eq(steps, growth_interval);
  const at::Tensor grown = at::mul(scale, growth_factor);
  // A scale that would leave the range of floats stays as it is.
  const at::Tensor next = at::where(at::logical_and(due, at::isfinite(grown)), grown, scale);
  scale.copy_(at::where(overflow, at::mul(scale, backoff_factor), next));
  growth_tracker.copy_(at::where(at::logical_or(overflow, due), 0, steps).reshape(growth_tracker.sizes()));
  return scale;
}

} // namespace torch_opencl::native
