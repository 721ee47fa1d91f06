// Generated from native_functions.yaml by rust/codegen.

#include "dispatch/registration.h"
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
#include <ATen/ops/isnan.h>
#include <ATen/ops/mm_native.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/nonzero_native.h>
#include <ATen/ops/nonzero_ops.h>
#include <ATen/ops/qr_native.h>
#include <ATen/ops/qr_ops.h>
#include <ATen/ops/roll_native.h>
#include <ATen/ops/roll_ops.h>
#include <ATen/ops/sum_native.h>
#include <ATen/ops/sum_ops.h>

namespace torch_opencl::native {

std::remove_pointer_t<decltype(at::native::sum_stub)::FnPtr> sum;
constexpr auto nonzero_outputs = []([[maybe_unused]] auto&& self) -> Returns<at::_ops::nonzero> { return at::cat({self.exp()}, 0); };
constexpr auto roll_expression = []([[maybe_unused]] auto&& self, [[maybe_unused]] auto&& shifts, [[maybe_unused]] auto&& dims) -> Returns<at::_ops::roll> { return at::cat({self.narrow(dims[0], 0, shifts[0]), at::isnan(self)}, 0).to(at::kFloat); };

}  // namespace torch_opencl::native

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(fill_stub, (&torch_opencl::Pointwise<fill_stub, torch_opencl::PointwiseOp::fill__Scalar>::call))
REGISTER_PRIVATEUSE1_DISPATCH(sum_stub, &torch_opencl::native::sum)

}  // namespace at::native

namespace torch_opencl {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  entry<at::_ops::fill__Scalar, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(at::native::fill_)>>(m, "fill_.Scalar", {.dtypes = 0x8eff});
  entry<at::_ops::fill__Tensor, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(at::native::fill_)>>(m, "fill_.Tensor", {.dtypes = 0x8eff});
  entry<at::_ops::sum_dim_IntList, SmallCalls::Cpu, form::Functional<at::native::structured_sum_out, 1>>(m, "sum.dim_IntList", {.dtypes = 0x8eff});
  entry<at::_ops::sum_IntList_out, SmallCalls::Cpu, form::Out<at::native::structured_sum_out, 1, SmallCalls::Cpu>>(m, "sum.IntList_out", {.dtypes = 0x8eff});
  entry<at::_ops::aminmax, SmallCalls::Cpu, form::Functional<torch_opencl::native::aminmax_out, 2>>(m, "aminmax", {.dtypes = 0x80e0});
  entry<at::_ops::aminmax_out, SmallCalls::Cpu, form::Out<torch_opencl::native::aminmax_out, 2, SmallCalls::Cpu>>(m, "aminmax.out", {.dtypes = 0x80e0});
  entry<at::_ops::mm, SmallCalls::Cpu, form::Functional<torch_opencl::native::mm_out, 1>>(m, "mm", {.dtypes = 0x86e0, .cost = Cost::Matmul});
  entry<at::_ops::mm_out, SmallCalls::Cpu, form::Out<torch_opencl::native::mm_out, 1, SmallCalls::Cpu>>(m, "mm.out", {.dtypes = 0x86e0, .cost = Cost::Matmul});
  entry<at::_ops::histc, SmallCalls::Cpu, form::Function<TORCH_OPENCL_CALLABLE(torch_opencl::native::histc)>>(m, "histc", {.dtypes = 0x80e0});
  entry<at::_ops::histc_out, SmallCalls::Cpu, form::Copied<TORCH_OPENCL_CALLABLE(torch_opencl::native::histc), 1>>(m, "histc.out", {.dtypes = 0x80e0});
  entry<at::_ops::nonzero, SmallCalls::Cpu, form::Allocating<TORCH_OPENCL_CALLABLE(torch_opencl::native::nonzero_out), decltype(torch_opencl::native::nonzero_outputs)>>(m, "nonzero", {.dtypes = 0x8eff});
  entry<at::_ops::nonzero_out, SmallCalls::Cpu, form::Function<TORCH_OPENCL_CALLABLE(torch_opencl::native::nonzero_out)>>(m, "nonzero.out", {.dtypes = 0x8eff});
  entry<at::_ops::mm_dtype, SmallCalls::Cpu, form::Function<TORCH_OPENCL_CALLABLE((torch_opencl::with_struct<at::_ops::mm_dtype, &torch_opencl::native::mm_dtype>))>>(m, "mm.dtype", {.dtypes = 0x80e0});
  entry<at::_ops::roll, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(torch_opencl::native::roll_expression)>>(m, "roll", {.dtypes = 0x8eff, .cpu = CpuCalls::Always, .cpu_dtypes = 0x8eff});
  m.impl("qr", torch::CppFunction::makeFromBoxedFunction<&torch_opencl::host_kernel>());
  m.impl("qr.out", torch::CppFunction::makeFromBoxedFunction<&torch_opencl::host_kernel>());
}

}  // namespace torch_opencl

// Generated from native_functions.yaml by rust/codegen.

#include "dispatch/registration.h"
#include "pointwise_op.h"
#include "native/entries.h"

#include <ATen/native/Pointwise.h>
#include <ATen/ops/exponential_native.h>
#include <ATen/ops/exponential_ops.h>

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(exponential_stub, (&torch_opencl::native::Sample<decltype(exponential_stub)::FnPtr, torch_opencl::Distribution::exponential_>::call))

}  // namespace at::native

namespace torch_opencl {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  entry<at::_ops::exponential_, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(at::native::exponential_)>>(m, "exponential_", {.dtypes = 0x80e0});
}

}  // namespace torch_opencl

// Generated from native_functions.yaml by rust/codegen.

#include "dispatch/registration.h"
#include "pointwise_op.h"
#include "native/entries.h"

#include <ATen/native/Pointwise.h>

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(frexp_stub, (&torch_opencl::Pointwise<frexp_stub, torch_opencl::PointwiseOp::frexp_stub>::call))

}  // namespace at::native

// Generated from native_functions.yaml by rust/codegen.

#include "dispatch/registration.h"
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

namespace torch_opencl {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  entry<at::_ops::add_Tensor, SmallCalls::Kernel, form::Functional<at::native::structured_ufunc_add_CPU, 1>>(m, "add.Tensor", {.dtypes = 0x8eff, .promotes = true});
  entry<at::_ops::add__Tensor, SmallCalls::Kernel, form::Inplace<at::native::structured_ufunc_add_CPU>>(m, "add_.Tensor", {.dtypes = 0x8eff, .promotes = true});
  entry<at::_ops::add_out, SmallCalls::Kernel, form::Out<at::native::structured_ufunc_add_CPU, 1, SmallCalls::Kernel>>(m, "add.out", {.dtypes = 0x8eff, .promotes = true});
  entry<at::_ops::sub_Tensor, SmallCalls::Kernel, form::Functional<at::native::structured_sub_out, 1>>(m, "sub.Tensor", {.dtypes = 0x86ff, .promotes = true});
  entry<at::_ops::sub_out, SmallCalls::Kernel, form::Out<at::native::structured_sub_out, 1, SmallCalls::Kernel>>(m, "sub.out", {.dtypes = 0x86ff, .promotes = true});
  entry<at::_ops::exp, SmallCalls::Kernel, form::Functional<at::native::structured_exp_out, 1>>(m, "exp", {.dtypes = 0x88ff});
  entry<at::_ops::exp_, SmallCalls::Kernel, form::Inplace<at::native::structured_exp_out>>(m, "exp_", {.dtypes = 0x88ff});
  entry<at::_ops::exp_out, SmallCalls::Kernel, form::Out<at::native::structured_exp_out, 1, SmallCalls::Kernel>>(m, "exp.out", {.dtypes = 0x88ff});
  entry<at::_ops::isnan, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(torch_opencl::native::isnan)>>(m, "isnan", {.dtypes = 0x80e0});
}

}  // namespace torch_opencl

namespace torch_opencl {

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  entry<at::_ops::add_Tensor, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(at::native::add_sparse)>>(m, "add.Tensor", {.dtypes = 0x8eff});
  entry<at::_ops::add__Tensor, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(at::native::add_sparse_)>>(m, "add_.Tensor", {.dtypes = 0x8eff});
  entry<at::_ops::isnan, SmallCalls::Kernel, form::Python>(m, "isnan", {.dtypes = 0x8eff});
}

}  // namespace torch_opencl

namespace torch_opencl {

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  entry<at::_ops::add_Tensor, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(at::native::add_sparse_csr)>>(m, "add.Tensor", {.dtypes = 0x8eff});
}

}  // namespace torch_opencl

// Generated from native_functions.yaml by rust/codegen.

#include "dispatch/registration.h"
#include "pointwise_op.h"
#include "native/entries.h"
#include "entries/composite.h"

#include <ATen/native/Pointwise.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/where_native.h>
#include <ATen/ops/where_ops.h>

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(where_kernel, (&torch_opencl::Pointwise<where_kernel, torch_opencl::PointwiseOp::where_self>::call))

}  // namespace at::native

namespace torch_opencl {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  entry<at::_ops::_foreach_add_List, SmallCalls::Cpu, form::Function<TORCH_OPENCL_CALLABLE((torch_opencl::native::foreach::Foreach<torch_opencl::PointwiseOp::add_Tensor, torch_opencl::native::foreach::Number::Parameter, &at::native::foreach_tensor_add_list_kernel_slow>::call))>>(m, "_foreach_add.List", {.dtypes = 0x8eff});
  entry<at::_ops::_foreach_add__List, SmallCalls::Cpu, form::Function<TORCH_OPENCL_CALLABLE((torch_opencl::native::foreach::Foreach<torch_opencl::PointwiseOp::add_Tensor, torch_opencl::native::foreach::Number::Parameter, &at::native::foreach_tensor_add_list_kernel_slow_>::call))>>(m, "_foreach_add_.List", {.dtypes = 0x8eff});
  entry<at::_ops::_foreach_add_Scalar, SmallCalls::Cpu, form::Function<TORCH_OPENCL_CALLABLE((torch_opencl::native::foreach::Foreach<torch_opencl::PointwiseOp::add_Tensor, torch_opencl::native::foreach::Number::Input, &at::native::foreach_tensor_add_scalar_kernel_slow>::call))>>(m, "_foreach_add.Scalar", {.dtypes = 0x8eff});
  entry<at::_ops::_foreach_add__Scalar, SmallCalls::Cpu, form::Function<TORCH_OPENCL_CALLABLE((torch_opencl::native::foreach::Foreach<torch_opencl::PointwiseOp::add_Tensor, torch_opencl::native::foreach::Number::Input, &at::native::foreach_tensor_add_scalar_kernel_slow_>::call))>>(m, "_foreach_add_.Scalar", {.dtypes = 0x8eff});
  entry<at::_ops::where_self, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(at::native::where)>>(m, "where.self", {.dtypes = 0x850});
  entry<at::_ops::where_self_out, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(at::native::where_self_out)>>(m, "where.self_out", {.dtypes = 0x850});
}

}  // namespace torch_opencl

namespace torch_opencl {

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  entry<at::_ops::add_out, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(torch_opencl::native::add_sparse_out)>>(m, "add.out", {.dtypes = 0x8eff});
}

}  // namespace torch_opencl

// Generated from native_functions.yaml by rust/codegen.

#include "dispatch/registration.h"
#include "pointwise_op.h"
#include "native/entries.h"
#include "entries/composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/frexp_native.h>
#include <ATen/ops/frexp_ops.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/view_ops.h>

namespace torch_opencl::native {

constexpr auto frexp_Tensor_outputs = []([[maybe_unused]] auto&& self) -> Returns<at::_ops::frexp_Tensor> { return {at::exp(self), self}; };

}  // namespace torch_opencl::native

namespace torch_opencl {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  entry<at::_ops::view, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE(at::native::view)>>(m, "view", {.dtypes = 0x8eff});
  entry<at::_ops::frexp_Tensor, SmallCalls::Kernel, form::Allocating<TORCH_OPENCL_CALLABLE((torch_opencl::with_struct<at::_ops::frexp_Tensor_out, &torch_opencl::native::frexp_out>)), decltype(torch_opencl::native::frexp_Tensor_outputs)>>(m, "frexp.Tensor", {.dtypes = 0x80e0});
  entry<at::_ops::frexp_Tensor_out, SmallCalls::Kernel, form::Function<TORCH_OPENCL_CALLABLE((torch_opencl::with_struct<at::_ops::frexp_Tensor_out, &torch_opencl::native::frexp_out>))>>(m, "frexp.Tensor_out", {.dtypes = 0x80e0});
}

}  // namespace torch_opencl

// Generated from native_functions.yaml by rust/codegen.

#include "dispatch/registration.h"
#include "pointwise_op.h"
#include "native/entries.h"
#include "entries/copy.h"

#include <ATen/native/Pointwise.h>
#include <ATen/ops/bitwise_and_native.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/cat_native.h>
#include <ATen/ops/cat_ops.h>

namespace torch_opencl::native {

using cat_class = Cat<at::meta::structured_cat, 2>;

}  // namespace torch_opencl::native

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(bitwise_and_stub, (&torch_opencl::Pointwise<bitwise_and_stub, torch_opencl::PointwiseOp::bitwise_and_Tensor_out>::call))

}  // namespace at::native

namespace torch_opencl {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  entry<at::_ops::bitwise_and_Tensor, SmallCalls::Kernel, form::Functional<at::native::structured_bitwise_and_out, 1>>(m, "bitwise_and.Tensor", {.dtypes = 0x81f, .promotes = true});
  entry<at::_ops::bitwise_and_Tensor_out, SmallCalls::Kernel, form::Out<at::native::structured_bitwise_and_out, 1, SmallCalls::Kernel>>(m, "bitwise_and.Tensor_out", {.dtypes = 0x81f, .promotes = true});
  entry<at::_ops::cat, SmallCalls::Cpu, form::Functional<torch_opencl::native::cat_class, 1>>(m, "cat", {.dtypes = 0x8eff});
  entry<at::_ops::cat_out, SmallCalls::Cpu, form::Out<torch_opencl::native::cat_class, 1, SmallCalls::Cpu>>(m, "cat.out", {.dtypes = 0x8eff});
}

}  // namespace torch_opencl
