#include "error.h"

#include <c10/util/Exception.h>

namespace torch_opencl {

const char* message_of(const rust::Error& error) {
  return error.what() + 2;
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
    default:
      C10_THROW_ERROR(Error, message);
  }
}

void warn_of_wait() {
  TORCH_WARN("called a synchronizing OpenCL operation");
}

} // namespace torch_opencl
