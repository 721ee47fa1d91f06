// Operators of torchvision, for programs that import it.
#include <torch/library.h>

#include "../fallback.h"

// Non-maximum suppression goes through the boxes one by one: on the host, as what the table's family of that name.
TORCH_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  m.impl("nms", torch::CppFunction::makeFromBoxedFunction<&torch_opencl::host_kernel>());
}
