// Converts operands of an iteration that PyTorch has prepared for the bridge.
#pragma once

#include <ATen/TensorIterator.h>

#include "runtime/tensor_arg.h"

namespace torch_opencl {

// The slices borrow from the iterator: it must outlive the operand.
bridge::Operand operand(const at::TensorIteratorBase& iter, int index);

// Converts a scalar as storing it in a tensor of `dtype` would: integers wrap, 16-bit floats are rounded.
bridge::Scalar cast_to(const bridge::Scalar& value, at::ScalarType dtype);

// Converts a scalar for an op that computes in `dtype`. As on the CPU, a value that the dtype cannot hold raises.
bridge::Scalar scalar_as(const at::Scalar& value, at::ScalarType dtype);

} // namespace torch_opencl
