// PyTorch's CPU matmul, for rust/blas/host.rs.
#pragma once

#include <cstdint>

namespace torch_opencl::bridge {

struct Tensor;
struct Scalar;

int32_t host_threads();
// out = alpha * a @ b. The tensors' addresses are host pointers.
void host_matmul(Tensor out, Tensor a, Tensor b, Scalar alpha);
// out = alpha * a @ b + beta * bias
void host_addmm(Tensor out, Tensor bias, Tensor a, Tensor b, Scalar alpha, Scalar beta);

} // namespace torch_opencl::bridge
