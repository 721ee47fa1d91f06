// Operands of an iteration that PyTorch has prepared, as the bridge takes them.
#pragma once

#include <ATen/TensorIterator.h>

#include "tensor_arg.h"

namespace torch_opencl {

// The slices borrow from the iterator: it must outlive the operand.
bridge::Operand operand(const at::TensorIteratorBase& iter, int index);

// A scalar as a tensor of `dtype` would hold it: integers wrap, 16-bit floats are rounded.
bridge::Scalar cast_to(const bridge::Scalar& value, at::ScalarType dtype);

// A scalar as an op that computes in `dtype` takes it. A value that the dtype cannot hold raises, as on the CPU.
bridge::Scalar scalar_as(const at::Scalar& value, at::ScalarType dtype);

} // namespace torch_opencl
