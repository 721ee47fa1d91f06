// Decides which tensors may take over each other's TensorImpl, as in `param.data = moved` and so in `Module.to`.
//
// ATen has a fixed list of backends without PrivateUse1: `Module.to` would create new parameters, unknown to optimizers
// created before the move and to modules that share a weight.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace torch_opencl {
namespace {

bool is_dense(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet backends(
      {c10::BackendComponent::CPUBit, c10::BackendComponent::CUDABit, c10::BackendComponent::XPUBit,
       c10::BackendComponent::MPSBit, c10::BackendComponent::PrivateUse1Bit});
  return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) && keys.has_any(backends);
}

// ATen decides for tensors of other layouts, for example sparse ones.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  if (is_dense(self.key_set()) && is_dense(from.key_set())) return true;
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

} // namespace
} // namespace torch_opencl
