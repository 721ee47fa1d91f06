// Warnings of the Rust core as those of PyTorch.
#pragma once

#include "rust/cxx.h"

namespace torch_opencl::bridge {

// Warns the user once for each call.
void warn(rust::Str message);

} // namespace torch_opencl::bridge
