// Interpolation and padding.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "runtime/compat.h"
#include "torch_opencl/rust/ops/resample/mod.rs.h"

namespace torch_opencl::native {

using bridge::ResampleRule;

// --- interpolation: ATen's impl goes to the CPU's stubs

// Arguments in which the ops differ: align_corners where an op has it, a scale for each dimension, the output.
struct UpsampleArguments {
  void take(bool corners) {
    align_corners = corners;
  }
  void take(const std::optional<double>& scale) {
    scales.push_back(scale);
  }
  void take(const at::Tensor& tensor) {
    output = tensor;
  }

  bool align_corners = false;
  c10::SmallVector<std::optional<double>, 3> scales; // outermost dimension first
  at::Tensor output;
};

void upsample(ResampleRule rule, const at::Tensor& self, const UpsampleArguments& arguments);
void upsample_backward(ResampleRule rule, const at::Tensor& grad_output, const UpsampleArguments& arguments);

template <class Meta, ResampleRule kRule>
struct Upsample : Meta {
  template <class... Rest>
  void impl(const at::Tensor& self, at::IntArrayRef /*output_size*/, const Rest&... rest) {
    UpsampleArguments arguments;
    (arguments.take(rest), ...);
    upsample(kRule, self, arguments);
  }
};

template <class Meta, ResampleRule kRule>
struct UpsampleBackward : Meta {
  template <class... Rest>
  void impl(
      const at::Tensor& grad_output,
      at::IntArrayRef /*output_size*/,
      at::IntArrayRef /*input_size*/,
      const Rest&... rest) {
    UpsampleArguments arguments;
    (arguments.take(rest), ...);
    upsample_backward(kRule, grad_output, arguments);
  }
};

// --- padding

void pad(ResampleRule rule, const at::Tensor& self, at::IntArrayRef padding, const at::Tensor& output);
void pad_backward(
    ResampleRule rule, const at::Tensor& grad_output, at::IntArrayRef padding, const at::Tensor& grad_input);

template <class Meta, ResampleRule kRule>
struct Pad : Meta {
  void impl(const at::Tensor& self, at::IntArrayRef padding, const at::Tensor& output) {
    pad(kRule, self, padding, output);
  }
};

template <class Meta, ResampleRule kRule>
struct PadBackward : Meta {
  void impl(
      const at::Tensor& grad_output,
      const at::Tensor& /*self*/,
      at::IntArrayRef padding,
      const at::Tensor& grad_input) {
    pad_backward(kRule, grad_output, padding, grad_input);
  }
};

} // namespace torch_opencl::native
