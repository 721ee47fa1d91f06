// What the Rust core offers C++: what is generated from rust/bridge.rs and its parts in rust/bridge.
#pragma once

#include "rust/cxx.h"
#include "torch_opencl/rust/bridge.rs.h"
#include "torch_opencl/rust/bridge/fused.rs.h"
#include "torch_opencl/rust/bridge/runtime.rs.h"
