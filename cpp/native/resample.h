// Interpolation and padding.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad3d_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>
#include <c10/util/SmallVector.h>

#include "../compat.h"
#include "torch_opencl/rust/ops/resample.rs.h"
#if TORCH_OPENCL_TORCH_AT_LEAST(12)
#include <ATen/ops/_upsample_lanczos2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_meta.h>
#endif

namespace torch_opencl::native {

using bridge::ResampleRule;

// --- interpolation: ATen's impl goes to the CPU's stubs

// The arguments in which the ops differ: align_corners where an op has it, a scale for each dimension, the output.
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

#define TORCH_OPENCL_UPSAMPLE(NAME, RULE)                                       \
  using NAME##_out = Upsample<at::meta::structured_##NAME, ResampleRule::RULE>; \
  using NAME##_backward_out = UpsampleBackward<at::meta::structured_##NAME##_backward, ResampleRule::RULE>;

TORCH_OPENCL_UPSAMPLE(upsample_nearest1d, Nearest)
TORCH_OPENCL_UPSAMPLE(upsample_nearest2d, Nearest)
TORCH_OPENCL_UPSAMPLE(upsample_nearest3d, Nearest)
TORCH_OPENCL_UPSAMPLE(_upsample_nearest_exact1d, NearestExact)
TORCH_OPENCL_UPSAMPLE(_upsample_nearest_exact2d, NearestExact)
TORCH_OPENCL_UPSAMPLE(_upsample_nearest_exact3d, NearestExact)
TORCH_OPENCL_UPSAMPLE(upsample_linear1d, Linear)
TORCH_OPENCL_UPSAMPLE(upsample_bilinear2d, Linear)
TORCH_OPENCL_UPSAMPLE(upsample_trilinear3d, Linear)
TORCH_OPENCL_UPSAMPLE(upsample_bicubic2d, Cubic)
TORCH_OPENCL_UPSAMPLE(_upsample_bilinear2d_aa, SmoothLinear)
TORCH_OPENCL_UPSAMPLE(_upsample_bicubic2d_aa, SmoothCubic)
#if TORCH_OPENCL_TORCH_AT_LEAST(12)
TORCH_OPENCL_UPSAMPLE(_upsample_lanczos2d_aa, SmoothLanczos)
#endif
#undef TORCH_OPENCL_UPSAMPLE

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

using reflection_pad1d_out = Pad<at::meta::structured_reflection_pad1d, ResampleRule::Reflect>;
using reflection_pad1d_backward_out =
    PadBackward<at::meta::structured_reflection_pad1d_backward, ResampleRule::Reflect>;
using reflection_pad3d_out = Pad<at::meta::structured_reflection_pad3d, ResampleRule::Reflect>;
using reflection_pad3d_backward_out =
    PadBackward<at::meta::structured_reflection_pad3d_backward, ResampleRule::Reflect>;
using replication_pad1d_out = Pad<at::meta::structured_replication_pad1d, ResampleRule::Replicate>;
using replication_pad1d_backward_out =
    PadBackward<at::meta::structured_replication_pad1d_backward, ResampleRule::Replicate>;
using replication_pad2d_out = Pad<at::meta::structured_replication_pad2d, ResampleRule::Replicate>;
using replication_pad3d_out = Pad<at::meta::structured_replication_pad3d, ResampleRule::Replicate>;

// What ATen has no structured form of.
at::Tensor& reflection_pad2d_out(const at::Tensor& self, at::IntArrayRef padding, at::Tensor& out);
at::Tensor reflection_pad2d(const at::Tensor& self, at::IntArrayRef padding);
at::Tensor& reflection_pad2d_backward_out(
    const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef padding, at::Tensor& grad_input);
at::Tensor reflection_pad2d_backward(const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef padding);
at::Tensor& replication_pad_backward_out(
    const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef padding, at::Tensor& grad_input);
at::Tensor replication_pad_backward(const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef padding);

} // namespace torch_opencl::native
