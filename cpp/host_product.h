// PyTorch's matrix product on the CPU, for rust/blas/host.rs.
#pragma once

#include <cstdint>

namespace torch_opencl::bridge {

struct HostMatrix;
struct Factor;

int32_t host_threads();
// out = alpha * a @ b
void host_product(HostMatrix out, HostMatrix a, HostMatrix b, Factor alpha);
// out = alpha * a @ b + beta * addend
void host_product_added(HostMatrix out, HostMatrix addend, HostMatrix a, HostMatrix b, Factor alpha, Factor beta);

} // namespace torch_opencl::bridge
