// The sizes that decide if ATen's CPU kernel runs a call on a device that is the CPU.
//
// Measured on PoCL with 2 cores: waiting for a queue takes some 50 us, and one thread of the CPU computes a call of
// these sizes sooner. docs/decisions/017-small-calls.md says what is a small call.
#pragma once

#include <cstdint>

namespace torch_opencl::cpu_policy {

// --- small calls: the most elements of all tensors

constexpr int64_t kMaxElements = (int64_t{1} << 16) - 1;
// of ops that access each element once or a few times
constexpr int64_t kMaxElementsOnce = (int64_t{1} << 17) - 1;
// of matmuls and convolutions
constexpr int64_t kMaxOperands = (int64_t{1} << 18) - 1;
// of long functions such as Bessel's, which ATen's CPU kernels do not vectorize
constexpr int64_t kMaxElementsOfLong = (int64_t{1} << 11) - 1;

// --- small calls: other limits

// The most elements of a result: narrow matrices, or many rows of a small table, make a large one.
constexpr int64_t kMaxResultElements = (int64_t{1} << 19) - 1;
constexpr int64_t kMaxMultiplications = int64_t{1} << 21;
// of one step of an LSTM, which several threads would wait for each other to compute
constexpr int64_t kMaxMultiplicationsOfStep = int64_t{1} << 20;
// queries times keys, over all heads, of fused attention
constexpr int64_t kMaxScores = int64_t{1} << 15;

// --- large calls, for which some of ATen's CPU kernels are faster than ours: the fewest elements

constexpr int64_t kMinLarge = int64_t{1} << 16;
// Our kernels use one lane for each of so many channels, or rows of a scatter.
constexpr int64_t kMinLanes = 16;

} // namespace torch_opencl::cpu_policy
