// Iterations over few elements, which the CPU's own kernel computes sooner than one of ours is enqueued.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/BinaryOps.h>

#include "one_thread.h"

namespace torch_opencl {

// Whether ATen casts operands to the dtype that it promotes them to, before it calls a kernel for the CPU.
enum class Casts { No, ToCommon };

// Prepares an iteration for the CPU's kernel of its dispatch stub, and returns true, if the host may run it now: it is
// over few elements, the device is the CPU, and the current stream has nothing to do.
bool prepare_for_host(at::TensorIteratorBase& iter, Casts casts);

// Whether the CPU's kernel of a stub can be called. build.rs knows how libtorch was built only for x86.
template <auto& kStub>
#ifdef HAVE_AVX512_CPU_DEFINITION
inline constexpr bool kHasCpuKernel = true;
#else
inline constexpr bool kHasCpuKernel = false;
#endif
// ATen declares this one, and subtracts by `add_stub`.
template <>
inline constexpr bool kHasCpuKernel<at::native::sub_stub> = false;

// Calls the CPU's kernel of a stub, and returns true, if the host may do so now.
template <auto& kStub, class Iter, class... Args>
bool ran_on_host(Casts casts, Iter& iter, const Args&... args) {
  if constexpr (kHasCpuKernel<kStub>) {
    if (prepare_for_host(iter, casts)) {
      const OneThread one_thread;
      kStub(at::kCPU, iter, args...);
      return true;
    }
  }
  return false;
}

} // namespace torch_opencl
