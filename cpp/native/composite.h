// Replaces functions that ATen composes of other operators, and so never dispatches to a backend.
#pragma once

#include <torch/library.h>

// `register_all(torch::Library&)` registers the replacements: under the first key for tensors that autograd records,
// under the second for tensors of inference mode, which have no autograd.
#define TORCH_OPENCL_COMPOSITES(register_all)        \
  TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { \
    register_all(m);                                 \
  }                                                  \
  TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {         \
    register_all(m);                                 \
  }                                                  \
  static_assert(true)
