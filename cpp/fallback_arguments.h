// What the CPU fallback does to arguments besides moving them.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>
#include <string>

namespace torch_opencl {

// A generator for a call that runs on the CPU in place of `device`: it continues that of the device, which moves on.
// Raises as every device does when `generator` is of another one.
at::Generator host_generator(const at::Generator& generator, c10::Device device);

// Raises for arguments, on the host by now, that the CPU's kernel of the operator `name` would follow out of its
// memory.
void check_host_arguments(const std::string& name, c10::ArrayRef<c10::IValue> arguments);

} // namespace torch_opencl
