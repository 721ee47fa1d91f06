// Operators of torch.ops.torch_opencl that are defined elsewhere.
#pragma once

#include <cstdint>

namespace torch_opencl {

// The address of a function that python/launch calls, as it declares it; 0 where this PyTorch lacks what it needs.
int64_t new_tensor_function();

} // namespace torch_opencl
