// Small iterations: on CPU devices, run ATen's CPU kernel when that is cheaper than enqueueing ours.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/BinaryOps.h>
#include <c10/util/SmallVector.h>

#include "cpu/cpu_policy.h"
#include "cpu/host_dtypes.h"
#include "cpu/one_thread.h"

namespace torch_opencl {

// Says if ATen casts operands to the common dtype before it calls a CPU kernel.
enum class Casts { No, ToCommon };

// An iteration with host addresses instead of device addresses, for the CPU kernel of its dispatch stub.
class HostIteration {
 public:
  // Open if the host may run it now: it has few elements, the device is the CPU, and the current stream is idle.
  HostIteration(at::TensorIteratorBase& iter, Casts casts, Cost cost);

  bool is_open() const {
    return is_open_;
  }
  // Puts the device's addresses back, so that a kernel can run it. Not needed after the CPU kernel has run.
  void restore();

 private:
  void cast(int index, at::ScalarType common);
  bool open();

  at::TensorIteratorBase& iter_;
  c10::SmallVector<size_t, 5> addresses_;
  bool is_open_ = false;
};

// True if the CPU kernel of a stub can be called. Only for x86 build.rs knows how libtorch was built.
template <auto& kStub>
#ifdef HAVE_AVX512_CPU_DEFINITION
inline constexpr bool kHasCpuKernel = true;
#else
inline constexpr bool kHasCpuKernel = false;
#endif
// ATen only declares this stub. It subtracts with `add_stub`.
template <>
inline constexpr bool kHasCpuKernel<at::native::sub_stub> = false;

// Calls the CPU kernel of a stub and returns true, if the host may do so now and the kernel has the dtype (ours have
// more dtypes).
template <auto& kStub, Cost kCost = Cost::Iteration, class Iter, class... Args>
bool ran_on_host(Casts casts, Iter& iter, const Args&... args) {
  if constexpr (kHasCpuKernel<kStub>) {
    static UnsupportedDtypes unsupported;
    const at::ScalarType dtype = iter.dtype(iter.ntensors() - 1);
    if (unsupported.contains(dtype)) return false;
    HostIteration host(iter, casts, kCost);
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
