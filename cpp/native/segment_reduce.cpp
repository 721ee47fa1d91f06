// Kernels that ATen's functions for segments call: these check arguments, and give contiguous tensors.

#include <ATen/TensorOperators.h>
#include <ATen/native/SegmentReduce.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <limits>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/segment_reduce/mod.rs.h"

namespace torch_opencl::native {

using at::native::ReductionType;
using Initial = std::optional<at::Scalar>;
namespace {

// First rows and lengths of segments: one of the two is given by the other.
struct Runs {
  static Runs of_lengths(const at::Tensor& given) {
    const at::Tensor lengths = given.to(at::kLong).contiguous();
    return {(lengths.cumsum(-1) - lengths).contiguous(), lengths};
  }
  static Runs of_offsets(const at::Tensor& given) {
    const at::Tensor offsets = given.to(at::kLong);
    return {offsets.narrow(-1, 0, offsets.size(-1) - 1).contiguous(), offsets.diff().contiguous()};
  }

  at::Tensor starts, lengths;
};

double initial_value(ReductionType reduction, const Initial& initial) {
  if (initial.has_value()) return initial->toDouble();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case ReductionType::MAX:
      return -kInfinity;
    case ReductionType::MIN:
      return kInfinity;
    case ReductionType::PROD:
      return 1;
    default:
      return 0;
  }
}

// The dimension of the segments is the last one of the lengths or offsets.
bridge::Segments segments(ReductionType reduction, const at::Tensor& data, const Runs& runs, const Initial& initial) {
  return {
      arg(data),
      arg(runs.starts),
      arg(runs.lengths),
      static_cast<size_t>(runs.lengths.dim() - 1),
      static_cast<int32_t>(reduction),
      initial_value(reduction, initial),
      initial.has_value()};
}

at::Tensor reduce(ReductionType reduction, const at::Tensor& data, const Runs& runs, const Initial& initial) {
  at::DimVector sizes(data.sizes());
  sizes[static_cast<size_t>(runs.lengths.dim() - 1)] = runs.lengths.size(-1);
  at::Tensor output = at::empty(sizes, data.options());
  if (output.numel() == 0) return output;
  // Segments of no rows have no data.
  if (data.numel() == 0) {
    const bool is_nan = reduction == ReductionType::MEAN && !initial.has_value();
    return output.fill_(is_nan ? std::numeric_limits<double>::quiet_NaN() : initial_value(reduction, initial));
  }
  checked([&] { bridge::segment_reduce(arg(output), segments(reduction, data, runs, initial)); });
  return output;
}

at::Tensor reduce_backward(
    const at::Tensor& grad,
    const at::Tensor& output,
    const at::Tensor& data,
    ReductionType reduction,
    const Runs& runs,
    const Initial& initial) {
  at::Tensor grad_input = at::zeros_like(data);
  if (data.numel() == 0 || output.numel() == 0) return grad_input;
  checked([&] {
    bridge::segment_reduce_backward(arg(grad_input), arg(grad), arg(output), segments(reduction, data, runs, initial));
  });
  return grad_input;
}

} // namespace

at::Tensor segment_reduce_lengths(
    ReductionType reduction, const at::Tensor& data, const at::Tensor& lengths, int64_t, const Initial& initial) {
  return reduce(reduction, data, Runs::of_lengths(lengths), initial);
}

at::Tensor segment_reduce_offsets(
    ReductionType reduction, const at::Tensor& data, const at::Tensor& offsets, int64_t, const Initial& initial) {
  return reduce(reduction, data, Runs::of_offsets(offsets), initial);
}

at::Tensor segment_reduce_lengths_backward(
    const at::Tensor& grad,
    const at::Tensor& output,
    const at::Tensor& data,
    ReductionType reduction,
    const at::Tensor& lengths,
    int64_t,
    const Initial& initial) {
  return reduce_backward(grad, output, data, reduction, Runs::of_lengths(lengths), initial);
}

at::Tensor segment_reduce_offsets_backward(
    const at::Tensor& grad,
    const at::Tensor& output,
    const at::Tensor& data,
    ReductionType reduction,
    const at::Tensor& offsets,
    int64_t,
    const Initial& initial) {
  return reduce_backward(grad, output, data, reduction, Runs::of_offsets(offsets), initial);
}

} // namespace torch_opencl::native
