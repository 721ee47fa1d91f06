// PyTorch's settings of precision, for rust/ops/matmul/gemm_tile.rs.
#pragma once

namespace torch_opencl::bridge {

// Whether matmuls of float32 may round their operands to TensorFloat-32: torch.set_float32_matmul_precision, or
// torch.backends.cuda.matmul.allow_tf32, which sets the same. Raises if two settings contradict each other.
bool allows_tf32();

} // namespace torch_opencl::bridge
