// The Rust core's interface for all of C++: shared structs (rust/abi.rs) and the runtime (rust/bridge). The interface
// of a kernel family is generated from its file in rust/ops, as torch_opencl/rust/ops/<family>/mod.rs.h.
#pragma once

#include "rust/cxx.h"
#include "torch_opencl/rust/abi.rs.h"
#include "torch_opencl/rust/bridge/runtime.rs.h"
