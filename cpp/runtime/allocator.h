// Device memory for c10: addresses handed out by the Rust allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace torch_opencl {

c10::DeviceAllocator* device_allocator();
c10::Allocator* pinned_allocator();

} // namespace torch_opencl
