#include "entries/assertion.h"

#include <ATen/ops/ne.h>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/assertion/mod.rs.h"

namespace torch_opencl::native {
namespace {

void assert_nonzero(const at::Tensor& self, const std::string& message) {
  TORCH_CHECK(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(self.numel() < 2, "Boolean value of Tensor with more than one value is ambiguous");
  const at::Tensor condition = at::ne(self, 0);
  checked([&] { bridge::assert_true(arg(condition), message); });
}

} // namespace

// Neither waits: the error for a zero is raised when the host next waits.
void assert_async(const at::Tensor& self) {
  assert_nonzero(self, "Expected Tensor with single nonzero value, but got zero");
}

void assert_async_msg(const at::Tensor& self, c10::string_view assert_msg) {
  assert_nonzero(self, assert_msg.empty() ? std::string("Assertion is failed") : std::string(assert_msg));
}

// The token keeps assertions of a traced program in their order.
at::Tensor functional_assert_async_msg(
    const at::Tensor& self, c10::string_view assert_msg, const at::Tensor& dep_token) {
  native::assert_async_msg(self, assert_msg);
  return dep_token.clone();
}

} // namespace torch_opencl::native
