#include "runtime/error.h"

#include "runtime/interrupt.h"

namespace torch_opencl {

const char* message_of(const rust::Error& error) {
  return error.what() + 2;
}

void raise(const NoFloat64& refusal, std::string_view op) {
  // With nested operators the message names the outer one: drop the name that the inner one has put in front.
  const std::string_view text = refusal.what_without_backtrace();
  const size_t start = text.find("OpenCL: ");
  const std::string_view message = text.substr(start == std::string_view::npos ? 0 : start);
  throw NoFloat64({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, c10::str(op, ": ", message));
}

void raise(const rust::Error& error) {
  const std::string message = message_of(error);
  switch (error.what()[0]) {
    case 'M':
      C10_THROW_ERROR(OutOfMemoryError, message);
    case 'I':
      C10_THROW_ERROR(IndexError, message);
    case 'N':
      C10_THROW_ERROR(NotImplementedError, message);
    case 'S':
      rethrow_interrupt();
    case 'D':
      throw NoFloat64({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message);
    default:
      C10_THROW_ERROR(Error, message);
  }
}

void warn_of_wait() {
  TORCH_WARN("called a synchronizing OpenCL operation");
}

} // namespace torch_opencl
