#include "runtime/warning.h"

#include <c10/util/Exception.h>
#include <string>

namespace torch_opencl::bridge {

void warn(rust::Str message) {
  TORCH_WARN(std::string(message.data(), message.size()));
}

} // namespace torch_opencl::bridge
