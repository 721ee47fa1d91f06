// torch._foreach_*: one operation on every tensor of a list. Lists of many small tensors, such as a model's parameters
// and gradients, take one launch for several tensors; others run one by one, through ATen's own functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <vector>

#include "pointwise_op.h"

namespace torch_opencl::native {
namespace foreach {

// Role of a call's scalar in its operation: the last input, or the parameter. If the scalar is the input of an
// operation that also has a parameter (adding a scalar), the parameter is 1.
enum class Number { Input, Parameter };

// The arguments of one call.
struct Call {
  Number number;
  c10::SmallVector<at::TensorList, 3> lists; // the first is `self`
  at::Tensor one;                            // a scalar in device memory, the last input
  c10::SmallVector<at::Scalar, 4> scalars;   // none, one, or one for each tensor
  bool scalars_are_list = false;             // true for a list, which the caller may have made too short

  void take(at::TensorList list) {
    lists.push_back(list);
  }
  void take(const at::Tensor& number) {
    one = number;
  }
  void take(const at::Scalar& scalar) {
    scalars.push_back(scalar);
  }
  void take(at::ArrayRef<at::Scalar> list) {
    scalars.append(list.begin(), list.end());
    scalars_are_list = true;
  }
  void take(bool) {} // non_blocking of a copy: it always is

  // Returns true if kernels take the call: floating tensors of one dtype, the n-th of each list laid out alike.
  bool is_simple() const;
  // Computes into `out`, whose tensors are laid out as those of the first list.
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

} // namespace torch_opencl::native
