#include "runtime/tensor_arg.h"

#include "runtime/error.h"

namespace torch_opencl {

void refuse_dtype(at::ScalarType dtype) {
  checked([&] { bridge::refuse_dtype(static_cast<int32_t>(dtype)); });
  TORCH_INTERNAL_ASSERT(false, "the bridge rejected a dtype that kernels support: ", dtype);
}

} // namespace torch_opencl
