// Iterations over few elements, which the CPU's own kernel computes sooner than one of ours is enqueued.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/BinaryOps.h>
#include <c10/util/SmallVector.h>

#include "host_dtypes.h"
#include "one_thread.h"

namespace torch_opencl {

// Whether ATen casts operands to the dtype that it promotes them to, before it calls a kernel for the CPU.
enum class Casts { No, ToCommon };

// An iteration with the addresses of the host in place of the device's, for the CPU's kernel of its dispatch stub.
class HostIteration {
 public:
  // Elements with which a call takes less than waiting for a queue (some 50 us, PoCL, 2 cores): of functions that take
  // some instructions, and of long ones, such as Bessel's, for which the CPU's kernels have no vectors.
  static constexpr int64_t kMaxElements = (int64_t{1} << 16) - 1, kMaxOfLong = (int64_t{1} << 11) - 1;

  // Open if the host may run it now: it is over few elements, the device is the CPU, and the current stream has nothing
  // to do.
  HostIteration(at::TensorIteratorBase& iter, Casts casts, int64_t max_elements);

  bool is_open() const {
    return is_open_;
  }
  // Puts the device's addresses back, for a kernel to run it. After the CPU's kernel nobody reads them.
  void restore();

 private:
  void cast(int index, at::ScalarType common);
  bool open();

  at::TensorIteratorBase& iter_;
  c10::SmallVector<size_t, 5> addresses_;
  bool is_open_ = false;
};

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

// Calls the CPU's kernel of a stub, and returns true, if the host may do so now and the kernel has the dtype: ours have
// more of them.
template <auto& kStub, int64_t kMaxElements = HostIteration::kMaxElements, class Iter, class... Args>
bool ran_on_host(Casts casts, Iter& iter, const Args&... args) {
  if constexpr (kHasCpuKernel<kStub>) {
    static UnsupportedDtypes unsupported;
    const at::ScalarType dtype = iter.dtype(iter.ntensors() - 1);
    if (unsupported.contains(dtype)) return false;
    HostIteration host(iter, casts, kMaxElements);
    if (!host.is_open()) return false;
    try {
      const OneThread one_thread;
      kStub(at::kCPU, iter, args...);
      return true;
    } catch (const c10::NotImplementedError&) {
      host.restore();
      unsupported.insert(dtype);
    }
  }
  return false;
}

} // namespace torch_opencl
