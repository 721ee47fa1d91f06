// What operators that normalise share.
#pragma once

#include <tuple>

#include "native_entries.h"

namespace torch_opencl::native {

using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// How means and deviations of an input are kept: in the precision that is computed in.
at::TensorOptions statistics_options(const at::Tensor& input);

} // namespace torch_opencl::native
