// New tensors for Python, without argument parsing and without the dispatcher, for wrappers of compiled graphs.

#include <ATen/core/TensorBase.h>
#include <dlfcn.h>

#include "native/memory.h"
#include "runtime/library.h"

// PyObject. Only its address is used.
struct _object;

namespace torch_opencl {
namespace {

using Wrap = _object* (*)(const at::TensorBase&);

// THPVariable_Wrap of PyTorch's Python bindings. This library does not link against them, because programs without
// Python also use it. In Python they are already loaded.
Wrap find_wrap() {
  void* bindings = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  if (bindings == nullptr) return nullptr;
  return reinterpret_cast<Wrap>(dlsym(bindings, "_Z16THPVariable_WrapRKN2at10TensorBaseE"));
}

Wrap wrap = nullptr;

// Returns a new reference, or null for any failure: the caller then calls the dispatcher, which raises the error. The
// caller holds the GIL.
_object* new_tensor(int device, int dtype, const int64_t* sizes, const int64_t* strides, size_t dims) noexcept {
  try {
    const c10::Device where(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
    const auto options = at::TensorOptions(where).dtype(static_cast<at::ScalarType>(dtype));
    return wrap(native::empty_strided({sizes, dims}, {strides, dims}, options));
  } catch (...) {
    return nullptr;
  }
}

} // namespace

int64_t new_tensor_function() {
  wrap = find_wrap();
  return wrap == nullptr ? 0 : static_cast<int64_t>(reinterpret_cast<intptr_t>(&new_tensor));
}

} // namespace torch_opencl
