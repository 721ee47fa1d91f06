// Errors of the Rust core as the exceptions PyTorch's own back ends raise.
#pragma once

#include "bridge.h"

namespace torch_opencl {

// Throws the c10::Error that the kind in front of `text` asks for (rust/error.rs holds the other half of the table).
[[noreturn]] void raise(const char* text);

// Runs a bridge call; its error becomes a Python exception.
template <class Call>
auto checked(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const rust::Error& error) {
    raise(error.what());
  }
}

} // namespace torch_opencl
