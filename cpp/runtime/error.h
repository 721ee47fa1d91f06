// Errors of the Rust core as the exceptions PyTorch's own backends raise.
#pragma once

#include <c10/util/Exception.h>
#include <string_view>
#include <type_traits>

#include "runtime/bridge.h"

namespace torch_opencl {

// The message for the user: the error's text without the prefix, which is the error's kind and a colon.
const char* message_of(const rust::Error& error);

// The device does not support float64. The bridge does not know the operator's name; the operator's wrapper does.
class NoFloat64 final : public c10::NotImplementedError {
 public:
  using c10::NotImplementedError::NotImplementedError;
};

// Throws the error again, with the operator's name in the message.
[[noreturn]] void raise(const NoFloat64& refusal, std::string_view op);

// Throws the c10::Error for the error's kind (rust/error.rs holds the other half of the table).
[[noreturn]] void raise(const rust::Error& error);

// Warns that an operation has waited for the device, if the user has requested such warnings.
void warn_of_wait();

inline void report_waits() {
  if (bridge::take_sync_warning()) warn_of_wait();
}

// Runs a bridge call; its error becomes a Python exception.
template <class Call>
auto checked(Call&& call) -> decltype(call()) {
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      report_waits();
    } else {
      auto result = call();
      report_waits();
      return result;
    }
  } catch (const rust::Error& error) {
    raise(error);
  }
}

} // namespace torch_opencl
