// Records allocations and frees of tensors with their call stacks: torch.opencl.memory._record_memory_history.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_opencl {

// True if allocations are recorded.
bool records_memory();

// Record that a block was allocated for a tensor, or is freed. Callers check records_memory() first.
void record_allocation(int32_t device, size_t address, size_t bytes, int64_t stream);
void record_free(int32_t device, size_t address, size_t bytes);

} // namespace torch_opencl
