// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "dispatch/entry.h"

#include <ATen/ops/add_ops.h>
#include <ATen/ops/frexp_ops.h>

namespace torch_opencl::native {

Entry<at::_ops::add_out> add_sparse_out;
TakesStruct<at::_ops::frexp_Tensor_out> frexp_out;
template <>
struct Arguments<at::_ops::frexp_Tensor_out> {
  Argument<at::_ops::frexp_Tensor_out, 0> self;
  Argument<at::_ops::frexp_Tensor_out, 1> mantissa;
  Argument<at::_ops::frexp_Tensor_out, 2> exponent;
};

}  // namespace torch_opencl::native

// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "dispatch/entry.h"

#include <ATen/ops/cat_meta.h>

namespace torch_opencl::native {


}  // namespace torch_opencl::native

// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "dispatch/entry.h"

#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>

namespace torch_opencl::native {

TakesStruct<at::_ops::mm_dtype> mm_dtype;
struct mm_out : at::meta::structured_mm {
  Impl<at::_ops::mm_out, 1> impl;
};
template <>
struct Arguments<at::_ops::mm_dtype> {
  Argument<at::_ops::mm_dtype, 0> self;
  Argument<at::_ops::mm_dtype, 1> mat2;
  Argument<at::_ops::mm_dtype, 2> out_dtype;
};

}  // namespace torch_opencl::native

// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "dispatch/entry.h"

#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/nonzero_ops.h>

namespace torch_opencl::native {

Entry<at::_ops::histc> histc;
Entry<at::_ops::nonzero_out> nonzero_out;
struct aminmax_out : at::meta::structured_aminmax {
  Impl<at::_ops::aminmax_out, 2> impl;
};

}  // namespace torch_opencl::native

// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "dispatch/entry.h"

#include <ATen/ops/isnan_ops.h>

namespace torch_opencl::native {

Entry<at::_ops::isnan> isnan;

}  // namespace torch_opencl::native
