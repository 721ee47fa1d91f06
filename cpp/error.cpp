#include "error.h"

#include <c10/util/Exception.h>

namespace torch_opencl {

void raise(const char* text) {
  const std::string tagged(text);
  const std::string message = tagged.size() > 2 && tagged[1] == ':' ? tagged.substr(2) : tagged;
  switch (tagged.empty() ? 'R' : tagged[0]) {
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

} // namespace torch_opencl
