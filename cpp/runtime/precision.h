// PyTorch's settings of precision, for rust/ops/matmul/gemm_tile.rs.
#pragma once

namespace torch_opencl::bridge {

// Whether matmuls of float32 may round their operands to TensorFloat-32, as on CUDA:
// torch.set_float32_matmul_precision, torch.backends.cuda.matmul.fp32_precision. False below an at::NoTF32Guard.
bool allows_tf32();

} // namespace torch_opencl::bridge
