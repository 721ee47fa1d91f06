// Generated from native_functions.yaml by rust/codegen.

#include "registration.h"
#include "pointwise_op.h"
#include "native/entries.h"
#include "entries/matmul.h"
#include "entries/reduce.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/Pointwise.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/ops/aminmax_native.h>
#include <ATen/ops/aminmax_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/fill_native.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/mm_native.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/nonzero_native.h>
#include <ATen/ops/nonzero_ops.h>
#include <ATen/ops/qr_native.h>
#include <ATen/ops/qr_ops.h>
#include <ATen/ops/sum_native.h>
#include <ATen/ops/sum_ops.h>

namespace torch_opencl::native {

std::remove_pointer_t<decltype(at::native::sum_stub)::FnPtr> sum;
constexpr auto nonzero_outputs = []([[maybe_unused]] auto&& self) -> Returns<at::_ops::nonzero> { return at::cat({self.exp()}, 0); };

}  // namespace torch_opencl::native

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(fill_stub, (&torch_opencl::Pointwise<fill_stub, torch_opencl::PointwiseOp::fill__Scalar>::call))
REGISTER_PRIVATEUSE1_DISPATCH(sum_stub, &torch_opencl::native::sum)

}  // namespace at::native

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  TORCH_OPENCL_FUNCTION(m, "fill_.Scalar", fill__Scalar, at::native::fill_, 0x8effull);
  TORCH_OPENCL_FUNCTION(m, "fill_.Tensor", fill__Tensor, at::native::fill_, 0x8effull);
  TORCH_OPENCL_FUNCTIONAL(m, "sum.dim_IntList", sum_dim_IntList, at::native::structured_sum_out, 1, torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_OUT(m, "sum.IntList_out", sum_IntList_out, at::native::structured_sum_out, 1, torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_FUNCTIONAL(m, "aminmax", aminmax, torch_opencl::native::aminmax_out, 2, torch_opencl::kSmallOnHost | 0x80e0ull);
  TORCH_OPENCL_OUT(m, "aminmax.out", aminmax_out, torch_opencl::native::aminmax_out, 2, torch_opencl::kSmallOnHost | 0x80e0ull);
  TORCH_OPENCL_FUNCTIONAL(m, "mm", mm, torch_opencl::native::mm_out, 1, torch_opencl::kSmallOnHost | 0x86e0ull);
  TORCH_OPENCL_OUT(m, "mm.out", mm_out, torch_opencl::native::mm_out, 1, torch_opencl::kSmallOnHost | 0x86e0ull);
  TORCH_OPENCL_FUNCTION(m, "histc", histc, torch_opencl::native::histc, torch_opencl::kSmallOnHost | 0x80e0ull);
  TORCH_OPENCL_COPIED(m, "histc.out", histc_out, torch_opencl::native::histc, 1, torch_opencl::kSmallOnHost | 0x80e0ull);
  TORCH_OPENCL_ALLOCATING(m, "nonzero", nonzero, torch_opencl::native::nonzero_out, torch_opencl::native::nonzero_outputs, torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_FUNCTION(m, "nonzero.out", nonzero_out, torch_opencl::native::nonzero_out, torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_FUNCTION(m, "mm.dtype", mm_dtype, (torch_opencl::with_struct<at::_ops::mm_dtype, &torch_opencl::native::mm_dtype>), torch_opencl::kSmallOnHost | 0x80e0ull);
  TORCH_OPENCL_HOST(m, "qr");
  TORCH_OPENCL_HOST(m, "qr.out");
}

// Generated from native_functions.yaml by rust/codegen.

#include "registration.h"
#include "pointwise_op.h"
#include "native/entries.h"

#include <ATen/native/Pointwise.h>
#include <ATen/ops/exponential_native.h>
#include <ATen/ops/exponential_ops.h>

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(exponential_stub, (&torch_opencl::native::Sample<decltype(exponential_stub)::FnPtr, torch_opencl::Distribution::exponential_>::call))

}  // namespace at::native

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  TORCH_OPENCL_FUNCTION(m, "exponential_", exponential_, at::native::exponential_, torch_opencl::kSmallWaits | 0x80e0ull);
}

// Generated from native_functions.yaml by rust/codegen.

#include "registration.h"
#include "pointwise_op.h"
#include "native/entries.h"

#include <ATen/native/Pointwise.h>

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(frexp_stub, (&torch_opencl::Pointwise<frexp_stub, torch_opencl::PointwiseOp::frexp_stub>::call))

}  // namespace at::native

// Generated from native_functions.yaml by rust/codegen.

#include "registration.h"
#include "pointwise_op.h"
#include "native/entries.h"
#include "entries/unary.h"

#include <ATen/native/Pointwise.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/exp_native.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/isnan_native.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/sub_native.h>
#include <ATen/ops/sub_ops.h>

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(add_stub, (&torch_opencl::Pointwise<add_stub, torch_opencl::PointwiseOp::add_Tensor>::call))
REGISTER_PRIVATEUSE1_DISPATCH(exp_stub, (&torch_opencl::Pointwise<exp_stub, torch_opencl::PointwiseOp::exp>::call))
REGISTER_PRIVATEUSE1_DISPATCH(div_trunc_stub, (&torch_opencl::Pointwise<div_trunc_stub, torch_opencl::PointwiseOp::div_trunc_stub>::call))

}  // namespace at::native

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  TORCH_OPENCL_FUNCTIONAL(m, "add.Tensor", add_Tensor, at::native::structured_ufunc_add_CPU, 1, torch_opencl::kPromotes | 0x8effull);
  TORCH_OPENCL_INPLACE(m, "add_.Tensor", add__Tensor, at::native::structured_ufunc_add_CPU, torch_opencl::kPromotes | 0x8effull);
  TORCH_OPENCL_OUT(m, "add.out", add_out, at::native::structured_ufunc_add_CPU, 1, torch_opencl::kPromotes | 0x8effull);
  TORCH_OPENCL_FUNCTIONAL(m, "sub.Tensor", sub_Tensor, at::native::structured_sub_out, 1, torch_opencl::kPromotes | torch_opencl::kSmallWaits | 0x86ffull);
  TORCH_OPENCL_OUT(m, "sub.out", sub_out, at::native::structured_sub_out, 1, torch_opencl::kPromotes | torch_opencl::kSmallWaits | 0x86ffull);
  TORCH_OPENCL_FUNCTIONAL(m, "exp", exp, at::native::structured_exp_out, 1, 0x88ffull);
  TORCH_OPENCL_INPLACE(m, "exp_", exp_, at::native::structured_exp_out, 0x88ffull);
  TORCH_OPENCL_OUT(m, "exp.out", exp_out, at::native::structured_exp_out, 1, 0x88ffull);
  TORCH_OPENCL_FUNCTION(m, "isnan", isnan, torch_opencl::native::isnan, torch_opencl::kSmallWaits | 0x80e0ull);
}

// Generated from native_functions.yaml by rust/codegen.

#include "registration.h"
#include "pointwise_op.h"
#include "native/entries.h"

#include <ATen/native/Pointwise.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/where_native.h>
#include <ATen/ops/where_ops.h>

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(where_kernel, (&torch_opencl::Pointwise<where_kernel, torch_opencl::PointwiseOp::where_self>::call))

}  // namespace at::native

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  TORCH_OPENCL_FUNCTION(m, "_foreach_add.List", _foreach_add_List, (torch_opencl::native::foreach::Foreach<torch_opencl::PointwiseOp::add_Tensor, torch_opencl::native::foreach::Number::Parameter, &at::native::foreach_tensor_add_list_kernel_slow>::call), torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_FUNCTION(m, "_foreach_add_.List", _foreach_add__List, (torch_opencl::native::foreach::Foreach<torch_opencl::PointwiseOp::add_Tensor, torch_opencl::native::foreach::Number::Parameter, &at::native::foreach_tensor_add_list_kernel_slow_>::call), torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_FUNCTION(m, "_foreach_add.Scalar", _foreach_add_Scalar, (torch_opencl::native::foreach::Foreach<torch_opencl::PointwiseOp::add_Tensor, torch_opencl::native::foreach::Number::Input, &at::native::foreach_tensor_add_scalar_kernel_slow>::call), torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_FUNCTION(m, "_foreach_add_.Scalar", _foreach_add__Scalar, (torch_opencl::native::foreach::Foreach<torch_opencl::PointwiseOp::add_Tensor, torch_opencl::native::foreach::Number::Input, &at::native::foreach_tensor_add_scalar_kernel_slow_>::call), torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_FUNCTION(m, "where.self", where_self, at::native::where, 0x0850ull);
  TORCH_OPENCL_FUNCTION(m, "where.self_out", where_self_out, at::native::where_self_out, 0x0850ull);
}

// Generated from native_functions.yaml by rust/codegen.

#include "registration.h"
#include "pointwise_op.h"
#include "native/entries.h"

#include <ATen/ops/view_native.h>
#include <ATen/ops/view_ops.h>

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  TORCH_OPENCL_FUNCTION(m, "view", view, at::native::view, 0x8effull);
}

// Generated from native_functions.yaml by rust/codegen.

#include "registration.h"
#include "pointwise_op.h"
#include "native/entries.h"
#include "entries/composite.h"
#include "entries/copy.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/Pointwise.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/bitwise_and_native.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/cat_native.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/frexp_native.h>
#include <ATen/ops/frexp_ops.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/roll_native.h>
#include <ATen/ops/roll_ops.h>

namespace torch_opencl::native {

using cat_class = Cat<at::meta::structured_cat, 2>;
constexpr auto frexp_Tensor_outputs = []([[maybe_unused]] auto&& self) -> Returns<at::_ops::frexp_Tensor> { return {at::exp(self), self}; };
constexpr auto roll_expression = []([[maybe_unused]] auto&& self, [[maybe_unused]] auto&& shifts, [[maybe_unused]] auto&& dims) -> Returns<at::_ops::roll> { return at::cat({self.narrow(dims[0], 0, shifts[0]), at::isnan(self)}, 0).to(at::kFloat); };

}  // namespace torch_opencl::native

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(bitwise_and_stub, (&torch_opencl::Pointwise<bitwise_and_stub, torch_opencl::PointwiseOp::bitwise_and_Tensor_out>::call))

}  // namespace at::native

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  TORCH_OPENCL_FUNCTIONAL(m, "bitwise_and.Tensor", bitwise_and_Tensor, at::native::structured_bitwise_and_out, 1, torch_opencl::kPromotes | 0x081full);
  TORCH_OPENCL_OUT(m, "bitwise_and.Tensor_out", bitwise_and_Tensor_out, at::native::structured_bitwise_and_out, 1, torch_opencl::kPromotes | 0x081full);
  TORCH_OPENCL_FUNCTIONAL(m, "cat", cat, torch_opencl::native::cat_class, 1, torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_OUT(m, "cat.out", cat_out, torch_opencl::native::cat_class, 1, torch_opencl::kSmallOnHost | 0x8effull);
  TORCH_OPENCL_ALLOCATING(m, "frexp.Tensor", frexp_Tensor, (torch_opencl::with_struct<at::_ops::frexp_Tensor_out, &torch_opencl::native::frexp_out>), torch_opencl::native::frexp_Tensor_outputs, 0x80e0ull);
  TORCH_OPENCL_FUNCTION(m, "frexp.Tensor_out", frexp_Tensor_out, (torch_opencl::with_struct<at::_ops::frexp_Tensor_out, &torch_opencl::native::frexp_out>), 0x80e0ull);
  TORCH_OPENCL_FUNCTION(torch_opencl::GpuLibrary(m, {torch_opencl::HostCalls::All, 0x8effull, 0x8effull}), "roll", roll, torch_opencl::native::roll_expression, 0x8effull);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  TORCH_OPENCL_FUNCTION(m, "add.Tensor", add_Tensor, at::native::add_sparse, 0x8effull);
  TORCH_OPENCL_FUNCTION(m, "add_.Tensor", add__Tensor, at::native::add_sparse_, 0x8effull);
  TORCH_OPENCL_FUNCTION(m, "add.out", add_out, torch_opencl::native::add_sparse_out, 0x8effull);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  TORCH_OPENCL_FUNCTION(m, "add.Tensor", add_Tensor, at::native::add_sparse_csr, 0x8effull);
}
