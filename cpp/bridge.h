// What the Rust core offers C++: the generated half of rust/bridge.rs.
#pragma once

#include "rust/cxx.h"
#include "torch_opencl/rust/bridge.rs.h"
