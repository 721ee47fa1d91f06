// Matmuls and convolutions whose kernel continues with source from torch.compile (an epilogue).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <optional>
#include <string>
#include <vector>

#include "torch_opencl/rust/ops/matmul/fused.rs.h"

namespace torch_opencl::native {

// The id of an epilogue, and the memory that it reads and writes while results are computed.
class FusedOperands {
 public:
  FusedOperands(int64_t epilogue, const std::vector<at::Tensor>& buffers, const std::vector<int64_t>& scalars);

  // The result refers to this object and to the scalars: both must outlive it.
  bridge::FusedOperands arg() const;

  // A result of these sizes and strides, which only the epilogue stores. Its address is an arbitrary one on the same
  // device.
  bridge::Tensor result(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides) const;

 private:
  int64_t epilogue_;
  std::vector<size_t> addresses_;
  const std::vector<int64_t>& scalars_;
};

// Returns the id of an epilogue.
int64_t fused_source(const std::string& source, bool reports_faults);

// The epilogue reads and writes `buffers` while alpha * a @ b + beta * bias, a matrix or a batch of them, is computed.
void fused_matmul(
    int64_t epilogue,
    const at::Tensor& a,
    const at::Tensor& b,
    const std::optional<at::Tensor>& bias,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    const std::vector<at::Tensor>& buffers,
    const std::vector<int64_t>& scalars);

// Likewise for a convolution, whose output is channels-last or contiguous.
void fused_convolution(
    int64_t epilogue,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    const std::vector<int64_t>& stride,
    const std::vector<int64_t>& padding,
    const std::vector<int64_t>& dilation,
    int64_t groups,
    bool channels_last,
    const std::vector<at::Tensor>& buffers,
    const std::vector<int64_t>& scalars);

// Returns true if convolutions with so many channels in a group have a kernel that takes an epilogue.
bool convolution_is_gemm(int64_t out_channels, int64_t in_channels);

} // namespace torch_opencl::native
