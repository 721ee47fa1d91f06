// torch._foreach_*: one operation on every tensor of a list. Lists of many small tensors, as a model's parameters and
// gradients are, take one launch for several tensors; others go one by one, through ATen's own functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_abs_native.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_addcdiv_native.h>
#include <ATen/ops/_foreach_addcmul_native.h>
#include <ATen/ops/_foreach_clamp_max_native.h>
#include <ATen/ops/_foreach_clamp_min_native.h>
#include <ATen/ops/_foreach_copy_native.h>
#include <ATen/ops/_foreach_div_native.h>
#include <ATen/ops/_foreach_exp_native.h>
#include <ATen/ops/_foreach_lerp_native.h>
#include <ATen/ops/_foreach_maximum_native.h>
#include <ATen/ops/_foreach_minimum_native.h>
#include <ATen/ops/_foreach_mul_native.h>
#include <ATen/ops/_foreach_neg_native.h>
#include <ATen/ops/_foreach_pow_native.h>
#include <ATen/ops/_foreach_reciprocal_native.h>
#include <ATen/ops/_foreach_rsqrt_native.h>
#include <ATen/ops/_foreach_sqrt_native.h>
#include <ATen/ops/_foreach_sub_native.h>
#include <ATen/ops/_foreach_zero_native.h>
#include <c10/util/SmallVector.h>
#include <vector>

#include "pointwise_op.h"

namespace torch_opencl::native {
namespace foreach {

// What the number of a call is to its operation: the last input, or the parameter. An operation with a parameter whose
// input is the number (adding a number) has 1 in its place.
enum class Number { Input, Parameter };

// The arguments of one call.
struct Call {
  Number number;
  c10::SmallVector<at::TensorList, 3> lists; // the first is `self`
  at::Tensor one;                            // a number in device memory, the last input
  c10::SmallVector<at::Scalar, 4> numbers;   // none, one, or one for each tensor
  bool numbers_are_list = false;             // which the caller may have made too short

  void take(at::TensorList list) {
    lists.push_back(list);
  }
  void take(const at::Tensor& number) {
    one = number;
  }
  void take(const at::Scalar& scalar) {
    numbers.push_back(scalar);
  }
  void take(at::ArrayRef<at::Scalar> scalars) {
    numbers.append(scalars.begin(), scalars.end());
    numbers_are_list = true;
  }
  void take(bool) {} // whether a copy may be asynchronous: it is

  // Whether kernels take the call: floating tensors of one dtype, the n-th of each list laid out alike.
  bool is_simple() const;
  // Computes into `out`, whose tensors lie as those of the first list do.
  void run(PointwiseOp op, at::TensorList out) const;
  std::vector<at::Tensor> like_self() const;
};

// The operation with the signature of ATen's function `slow`, which serves all other calls.
template <PointwiseOp kOp, Number kNumber, auto kSlow>
struct Foreach;

template <PointwiseOp kOp, Number kNumber, class... Args, std::vector<at::Tensor> (*kSlow)(Args...)>
struct Foreach<kOp, kNumber, kSlow> {
  static std::vector<at::Tensor> call(Args... args) {
    Call call{kNumber, {}, {}, {}};
    (call.take(args), ...);
    if (!call.is_simple()) return kSlow(args...);
    std::vector<at::Tensor> out = call.like_self();
    call.run(kOp, out);
    return out;
  }
};

template <PointwiseOp kOp, Number kNumber, class... Args, void (*kSlow)(Args...)>
struct Foreach<kOp, kNumber, kSlow> {
  static void call(Args... args) {
    Call call{kNumber, {}, {}, {}};
    (call.take(args), ...);
    if (!call.is_simple()) return kSlow(args...);
    call.run(kOp, call.lists[0]);
  }
};

} // namespace foreach

// The pair of functions, in place and not, that ATen calls foreach_tensor_NAME.
#define FOREACH_PAIR(NAME, OP, NUMBER, SLOW)                                                                 \
  inline constexpr auto foreach_##NAME =                                                                     \
      &foreach::Foreach<PointwiseOp::OP, foreach::Number::NUMBER, &at::native::foreach_tensor_##SLOW>::call; \
  inline constexpr auto foreach_##NAME##_ =                                                                  \
      &foreach::Foreach<PointwiseOp::OP, foreach::Number::NUMBER, &at::native::foreach_tensor_##SLOW##_>::call;

FOREACH_PAIR(abs, abs_out, Parameter, abs_slow)
FOREACH_PAIR(exp, exp, Parameter, exp_slow)
FOREACH_PAIR(neg, neg, Parameter, neg_slow)
FOREACH_PAIR(reciprocal, reciprocal, Parameter, reciprocal_slow)
FOREACH_PAIR(rsqrt, rsqrt, Parameter, rsqrt_slow)
FOREACH_PAIR(sqrt, sqrt, Parameter, sqrt_slow)
FOREACH_PAIR(add_list, add_Tensor, Parameter, add_list_kernel_slow)
FOREACH_PAIR(sub_list, sub_Tensor, Parameter, sub_list_kernel_slow)
FOREACH_PAIR(mul_list, mul_Tensor, Parameter, mul_list_kernel_slow)
FOREACH_PAIR(div_list, div_Tensor, Parameter, div_list_kernel_slow)
FOREACH_PAIR(clamp_min_list, maximum, Parameter, clamp_min_list_kernel_slow)
FOREACH_PAIR(clamp_max_list, minimum, Parameter, clamp_max_list_kernel_slow)
FOREACH_PAIR(add_scalar, add_Tensor, Input, add_scalar_kernel_slow)
FOREACH_PAIR(sub_scalar, sub_Tensor, Input, sub_scalar_kernel_slow)
FOREACH_PAIR(mul_scalar, mul_Tensor, Input, mul_scalar_kernel_slow)
FOREACH_PAIR(div_scalar, div_Tensor, Input, div_scalar_kernel_slow)
FOREACH_PAIR(clamp_min_scalar, maximum, Input, clamp_min_scalar_kernel_slow)
FOREACH_PAIR(clamp_max_scalar, minimum, Input, clamp_max_scalar_kernel_slow)
FOREACH_PAIR(pow_scalar, pow_Tensor_Scalar, Parameter, pow_scalar_kernel_slow)
FOREACH_PAIR(add_scalarlist, add_Tensor, Input, add_scalarlist_kernel_slow)
FOREACH_PAIR(sub_scalarlist, sub_Tensor, Input, sub_scalarlist_kernel_slow)
FOREACH_PAIR(mul_scalarlist, mul_Tensor, Input, mul_scalarlist_kernel_slow)
FOREACH_PAIR(div_scalarlist, div_Tensor, Input, div_scalarlist_kernel_slow)
FOREACH_PAIR(mul_tensor, mul_Tensor, Parameter, mul_tensor_kernel_slow)
FOREACH_PAIR(div_tensor, div_Tensor, Parameter, div_tensor_kernel_slow)
FOREACH_PAIR(addcmul_scalar, addcmul, Parameter, addcmul_scalar_slow)
FOREACH_PAIR(addcmul_scalarlist, addcmul, Parameter, addcmul_scalarlist_slow)
FOREACH_PAIR(addcdiv_scalar, addcdiv, Parameter, addcdiv_scalar_slow)
FOREACH_PAIR(addcdiv_scalarlist, addcdiv, Parameter, addcdiv_scalarlist_slow)
FOREACH_PAIR(lerp_list, lerp_Tensor, Parameter, ternary_lerp_slow)
FOREACH_PAIR(lerp_scalar, lerp_Scalar, Parameter, lerp_list_kernel_slow)

#undef FOREACH_PAIR

void foreach_zero_(at::TensorList self);
void foreach_copy_(at::TensorList self, at::TensorList src, bool non_blocking);
std::vector<at::Tensor> foreach_norm(at::TensorList self, const at::Scalar& ord, std::optional<at::ScalarType> dtype);

} // namespace torch_opencl::native
