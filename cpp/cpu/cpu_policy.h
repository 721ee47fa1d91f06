// Decides if ATen's CPU kernel computes a call on a device that is the CPU. All code that may call a CPU kernel there
// asks `is_small`, if the device must be idle for it, or `runs_on_cpu`, if waiting for the device is worthwhile.
//
// In native_functions.yaml `on_cpu` says what is asked for the ops of a row, and `cost` what limits their small calls.
// docs/decisions/014-what-the-host-computes.md and 017-small-calls.md give the reasons.
#pragma once

#include <ATen/core/TensorBase.h>
#include <cstdint>
#include <limits>

namespace torch_opencl {

// What limits a small call.
enum class Cost : uint8_t {
  Table,         // elements of the tensors, and of a result with the most rows and the most columns that they have
  Elements,      // elements of the tensors: no result is larger, and each is accessed once or a few times
  Sizes,         // elements of the tensors, and of a result of the sizes among the arguments
  Matmul,        // multiplications of the last two inputs, and elements of their product
  Convolution,   // as Matmul, but the entry counts
  Attention,     // elements of the tensors, and scores: queries times keys, over all heads
  LstmStep,      // multiplications of one step, which several threads would wait for each other to compute
  Iteration,     // elements of an element-wise op
  LongIteration, // elements of a long function such as Bessel's, which ATen's CPU kernels do not vectorize
};

// Calls that ATen's CPU kernel computes even if it must wait for the device first, because it is faster than our
// kernel.
enum class CpuCalls : uint8_t {
  None,
  Large,  // calls with a large tensor, which take longer than waiting for the queue
  Always, // all calls
};

namespace cpu_policy {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The work of a call, or its limits.
struct Work {
  int64_t elements = 0; // of all tensors
  int64_t results = 0;  // elements of the result; scores, for attention
  int64_t multiplications = 0;
};

// The most work of a small call. Measured on PoCL with 2 cores: waiting for a queue takes some 50 us, and one thread of
// the CPU computes a call of these sizes sooner.
constexpr Work limits(Cost cost) {
  constexpr auto below = [](int bits) { return (int64_t{1} << bits) - 1; };
  constexpr auto up_to = [](int bits) { return int64_t{1} << bits; };
  switch (cost) {
    // Narrow matrices, or many rows of a small table, have a large result.
    case Cost::Table:
    case Cost::Sizes:
      return {below(16), below(19), kUnlimited};
    case Cost::Elements:
      return {below(17), kUnlimited, kUnlimited};
    case Cost::Matmul:
    case Cost::Convolution:
      return {below(18), below(19), up_to(21)};
    case Cost::Attention:
      return {below(16), up_to(15), kUnlimited};
    case Cost::LstmStep:
      return {kUnlimited, kUnlimited, up_to(20)};
    case Cost::Iteration:
      return {below(16), kUnlimited, kUnlimited};
    case Cost::LongIteration:
      return {below(11), kUnlimited, kUnlimited};
  }
  return {};
}

constexpr bool is_small(Cost cost, const Work& work) {
  const Work most = limits(cost);
  return work.elements <= most.elements && work.results <= most.results && work.multiplications <= most.multiplications;
}

// Returns true if the device of `tensor` is the CPU, and ATen's kernel computes such a call with `elements` elements.
bool runs_on_cpu(CpuCalls calls, const at::TensorBase& tensor, int64_t elements);

inline bool runs_on_cpu(CpuCalls calls, const at::TensorBase& tensor) {
  return runs_on_cpu(calls, tensor, tensor.numel());
}

// Returns true for a large call for which our kernel would use so few lanes that ATen's CPU kernel is faster.
bool has_few_lanes(const at::TensorBase& tensor, int64_t elements, int64_t lanes);

} // namespace cpu_policy
} // namespace torch_opencl
