// Matmuls whose kernel goes on with a text of torch.compile.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <optional>
#include <string>
#include <vector>

namespace torch_opencl::native {

// Gives a text a number.
int64_t fused_text(const std::string& source, bool reports_faults);

// The text reads and writes `buffers` where alpha * a @ b + beta * bias, a matrix or a batch of them, is computed.
void fused_matmul(
    int64_t text,
    const at::Tensor& a,
    const at::Tensor& b,
    const std::optional<at::Tensor>& bias,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    const std::vector<at::Tensor>& buffers,
    const std::vector<int64_t>& scalars);

} // namespace torch_opencl::native
