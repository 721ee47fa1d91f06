// Issues warnings of the Rust core as PyTorch warnings.
#pragma once

#include "rust/cxx.h"

namespace torch_opencl::bridge {

// Warns the user once for each call.
void warn(rust::Str message);

} // namespace torch_opencl::bridge
