// PyTorch's settings of precision, for rust/ops/matmul/gemm_tile.rs.
#pragma once

namespace torch_opencl::bridge {

// Returns true if matmuls of float32 may round their operands to TensorFloat-32. CUDA's setting decides:
// torch.set_float32_matmul_precision or torch.backends.cuda.matmul.fp32_precision. An at::NoTF32Guard makes it false.
bool allows_tf32();

} // namespace torch_opencl::bridge
