// Threads of the autograd engine.
#pragma once

#include <c10/core/Device.h>
#include <cstdint>

namespace torch_opencl {

// Has the backward passes that this thread starts run in it, if the device is the CPU. See
// docs/decisions/019-backward-in-the-calling-thread.md.
void keep_backward_in_thread(c10::DeviceIndex index);

// Waits until the engine's thread of a device has let go of the passes that it has run, two seconds at most.
void finish_autograd(int64_t index);

} // namespace torch_opencl
