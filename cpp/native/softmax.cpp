#include "entries/softmax.h"

#include <ATen/WrapDimUtils.h>

#include "native/contiguous.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/softmax/mod.rs.h"

namespace torch_opencl::native {
namespace {

// A scalar is a row of one element.
at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor.contiguous();
}

size_t axis_of(const at::Tensor& tensor, int64_t dim) {
  return static_cast<size_t>(at::maybe_wrap_dim(dim, tensor.dim()));
}

void forward(const at::Tensor& self, int64_t dim, const at::Tensor& result, bool log) {
  const ContiguousOutput output(result);
  const at::Tensor input = as_rows(self), out = as_rows(output.tensor());
  checked([&] { bridge::softmax(arg(input), arg(out), axis_of(input, dim), log); });
  output.finish();
}

void backward(
    const at::Tensor& grad_output, const at::Tensor& output, int64_t dim, const at::Tensor& result, bool log) {
  const ContiguousOutput grad_input(result);
  const at::Tensor grad = as_rows(grad_output), value = as_rows(output), out = as_rows(grad_input.tensor());
  checked([&] { bridge::softmax_backward(arg(grad), arg(value), arg(out), axis_of(grad, dim), log); });
  grad_input.finish();
}

} // namespace

void softmax_out::impl(const at::Tensor& self, int64_t dim, bool, const at::Tensor& result) {
  forward(self, dim, result, /*log=*/false);
}

void log_softmax_out::impl(const at::Tensor& self, int64_t dim, bool, const at::Tensor& result) {
  forward(self, dim, result, /*log=*/true);
}

void softmax_backward_out::impl(
    const at::Tensor& grad_output,
    const at::Tensor& output,
    int64_t dim,
    at::ScalarType,
    const at::Tensor& grad_input) {
  backward(grad_output, output, dim, grad_input, /*log=*/false);
}

void log_softmax_backward_out::impl(
    const at::Tensor& grad_output,
    const at::Tensor& output,
    int64_t dim,
    at::ScalarType,
    const at::Tensor& grad_input) {
  backward(grad_output, output, dim, grad_input, /*log=*/true);
}

} // namespace torch_opencl::native
