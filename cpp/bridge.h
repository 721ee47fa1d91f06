// What the Rust core offers C++: the generated halves of rust/bridge.rs and rust/bridge/runtime.rs.
#pragma once

#include "rust/cxx.h"
#include "torch_opencl/rust/bridge.rs.h"
#include "torch_opencl/rust/bridge/runtime.rs.h"
