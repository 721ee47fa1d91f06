// Decides which tensors may take over each other's TensorImpl, as `param.data = moved` does, and with it `Module.to`.
//
// ATen's own answer knows a fixed list of backends, and PrivateUse1 is not one of them: `Module.to` would make new
// parameters, of which optimizers made before the move, and modules that share a weight, know nothing.
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

// Of tensors of other layouts, sparse ones say, ATen decides.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  if (is_dense(self.key_set()) && is_dense(from.key_set())) return true;
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

} // namespace
} // namespace torch_opencl
