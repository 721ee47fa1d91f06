// Records allocations and frees of tensors with the stacks of their calls: torch.opencl.memory._record_memory_history.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_opencl {

// True where allocations are recorded.
bool records_memory();

// Records that a block has been given to a tensor, or is given back. Callers ask records_memory() first.
void record_allocation(int32_t device, size_t address, size_t bytes, int64_t stream);
void record_free(int32_t device, size_t address, size_t bytes);

} // namespace torch_opencl
