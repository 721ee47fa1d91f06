#include "entries/composite.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>

namespace torch_opencl::native {
namespace {

// Empty bool tensor on the device: either operand may be a 0-dim tensor from the host.
at::Tensor empty_bool(const at::Tensor& self, const at::Tensor& other) {
  const at::Tensor& there = self.is_privateuseone() ? self : other;
  return at::empty({0}, there.options().dtype(at::kBool));
}

} // namespace

at::Tensor logical_and(const at::Tensor& self, const at::Tensor& other) {
  at::Tensor out = empty_bool(self, other);
  return at::logical_and_out(out, self, other);
}

at::Tensor logical_or(const at::Tensor& self, const at::Tensor& other) {
  at::Tensor out = empty_bool(self, other);
  return at::logical_or_out(out, self, other);
}

at::Tensor logical_xor(const at::Tensor& self, const at::Tensor& other) {
  at::Tensor out = empty_bool(self, other);
  return at::logical_xor_out(out, self, other);
}

} // namespace torch_opencl::native
