// The properties of an op in its row of native_functions.yaml, apart from the implementation.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cpu/cpu_policy.h"
#include "cpu/host_dtypes.h"

namespace torch_opencl {

// How a small call runs on a device that is the CPU.
enum class SmallCalls : uint8_t {
  Kernel, // as a large call does
  Cpu,    // ATen's CPU kernel runs on mapped memory
};

// A set of dtypes: bit k for the `ScalarType` k.
class DtypeSet {
 public:
  constexpr DtypeSet() = default;
  constexpr DtypeSet(uint64_t bits) : bits_(bits) {}

  constexpr bool contains(at::ScalarType dtype) const {
    const auto code = static_cast<unsigned>(dtype);
    return code < 64 && (bits_ >> code & 1u) != 0;
  }

 private:
  uint64_t bits_ = 0;
};

struct OpRow {
  // Dtypes that the kernel supports.
  DtypeSet dtypes = {};
  // The kernel also supports inputs that PyTorch promotes to one of these dtypes.
  bool promotes = false;
  Cost cost = Cost::Table;
  CpuCalls cpu = CpuCalls::None;
  // Dtypes that `cpu` applies to.
  DtypeSet cpu_dtypes = {};
};

// The op that a row is registered for.
struct OpInfo : OpRow {
  OpInfo(const OpRow& row, const char* name, const char* overload);

  // The dispatcher's op, which a library other than ATen may define later.
  c10::OperatorHandle handle() const;

  std::string_view name, overload;
  SmallCalls small = SmallCalls::Kernel;
  bool is_inplace;
  // Tensors may be on different devices: copies, and lists whose tensors are used in pairs.
  bool crosses_devices;
  // ATen has a CPU kernel.
  bool has_cpu_kernel = false;
  // Dtypes that ATen's CPU kernel has rejected.
  mutable UnsupportedDtypes refused;

 private:
  std::optional<c10::OperatorHandle> handle_;
};

} // namespace torch_opencl
