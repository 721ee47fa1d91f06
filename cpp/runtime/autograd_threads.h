// Threads of the autograd engine.
#pragma once

#include <c10/core/Device.h>
#include <cstdint>

namespace torch_opencl {

// If the device is the CPU, backward passes that this thread starts also run in this thread. See
// docs/decisions/019-backward-in-the-calling-thread.md.
void keep_backward_in_thread(c10::DeviceIndex index);

// Waits until the engine's thread of a device has released the passes that it has run, two seconds at most.
void finish_autograd(int64_t index);

} // namespace torch_opencl
