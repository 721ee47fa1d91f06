// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include <string>
#include <vector>

namespace torch_opencl {

// Ops that a Python function composes: the op, and `module:function`.
inline std::vector<std::string> python_functions() {
  return {
    "isnan comparisons:isnan",
  };
}

}  // namespace torch_opencl
