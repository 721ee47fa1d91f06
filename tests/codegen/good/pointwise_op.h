// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include <cstdint>

namespace torch_opencl {

// Operations of the pointwise kernels; the Rust enum of the same name has the same values.
enum class PointwiseOp : uint32_t {
  add_Tensor = 0,
  exp = 1,
  bitwise_and_Tensor_out = 2,
  where_self = 3,
  fill__Scalar = 4,
  frexp_stub = 5,
  isnan = 6,
  div_trunc_stub = 7,
};

// The operand whose dtype an operation computes in; Common is the dtype to which PyTorch promoted the inputs.
enum class ClassFrom : uint8_t { Common, Out, In0 };

constexpr ClassFrom class_from(PointwiseOp op) {
  switch (op) {
    case PointwiseOp::where_self: return ClassFrom::Out;
    case PointwiseOp::frexp_stub: return ClassFrom::In0;
    default: return ClassFrom::Common;
  }
}

// Operands that are not rounded to a 16-bit dtype: bit k for input k if it is a single value, bit 4 + k for scalar k.
constexpr uint32_t opmath(PointwiseOp op) {
  switch (op) {
    case PointwiseOp::add_Tensor: return 0x12;
    default: return 0;
  }
}

// Whether an operation is a long function, which has a separate part of the kernels' source.
constexpr bool is_long(PointwiseOp op) {
  switch (op) {
    case PointwiseOp::frexp_stub:
      return true;
    default: return false;
  }
}

// Returns true if kernels compute all calls of an operation, including small ones.
constexpr bool is_never_on_cpu(PointwiseOp op) {
  switch (op) {
    default: return false;
  }
}

}  // namespace torch_opencl
