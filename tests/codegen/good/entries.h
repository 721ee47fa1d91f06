// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "entry.h"

#include <ATen/ops/add_ops.h>

namespace torch_opencl::native {

Entry<at::_ops::add_out> add_sparse_out;

}  // namespace torch_opencl::native

// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "entry.h"

#include <ATen/ops/cat_meta.h>

namespace torch_opencl::native {


}  // namespace torch_opencl::native

// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "entry.h"

#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>

namespace torch_opencl::native {

struct mm_out : at::meta::structured_mm {
  Impl<at::_ops::mm_out, 1> impl;
};

}  // namespace torch_opencl::native

// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "entry.h"

#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/histc_ops.h>

namespace torch_opencl::native {

Entry<at::_ops::histc> histc;
struct aminmax_out : at::meta::structured_aminmax {
  Impl<at::_ops::aminmax_out, 2> impl;
};

}  // namespace torch_opencl::native

// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include "entry.h"

#include <ATen/ops/isnan_ops.h>

namespace torch_opencl::native {

Entry<at::_ops::isnan> isnan;

}  // namespace torch_opencl::native
