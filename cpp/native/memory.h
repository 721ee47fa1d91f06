// Allocation without the dispatcher.
#pragma once

#include "entries/view.h"

namespace torch_opencl::native {

at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options);
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);

} // namespace torch_opencl::native
