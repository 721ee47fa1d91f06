#include "runtime/precision.h"

#include <ATen/Context.h>
#include <stdexcept>

namespace torch_opencl::bridge {

bool allows_tf32() {
  try {
    return at::globalContext().allowTF32CuBLAS();
  } catch (const c10::Error& error) {
    // Rust gets `what()`, which would include a backtrace.
    throw std::runtime_error(error.what_without_backtrace());
  }
}

} // namespace torch_opencl::bridge
