// Shared by operators that normalise.
#pragma once

#include <tuple>

#include "entries/norm.h"
#include "torch_opencl/rust/ops/norm/mod.rs.h"

namespace torch_opencl::native {

using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Options of the saved mean and rstd of an input: the dtype that is computed in.
at::TensorOptions statistics_options(const at::Tensor& input);

// Samples, channels and positions as they follow one another in a dense tensor.
bridge::NormShape channels_of(const at::Tensor& dense);

} // namespace torch_opencl::native
