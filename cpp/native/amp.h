// What torch.amp.GradScaler computes on the device, made of other ops so that nothing waits for the host.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::native {

// Multiplies all gradients by `inv_scale`; sets `found_inf` to 1 if one held an infinity or a NaN.
void _amp_foreach_non_finite_check_and_unscale_(
    at::TensorList grads, at::Tensor& found_inf, const at::Tensor& inv_scale);

// Lowers the scale after an overflow, raises it after `growth_interval` steps without one.
at::Tensor& _amp_update_scale_(
    at::Tensor& scale,
    at::Tensor& growth_tracker,
    const at::Tensor& found_inf,
    double growth_factor,
    double backoff_factor,
    int64_t growth_interval);

} // namespace torch_opencl::native
