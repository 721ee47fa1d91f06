#include "runtime/precision.h"

#include <ATen/Context.h>

namespace torch_opencl::bridge {

bool allows_tf32() {
  // Not `allowTF32CuBLAS`, which raises if only the newer of two settings was used.
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  return precision == at::Float32Precision::TF32 && !at::NoTF32Guard::should_disable_tf32();
}

} // namespace torch_opencl::bridge
