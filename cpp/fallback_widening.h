// 16-bit floats in operators of which the CPU has kernels for 32 bits only.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <optional>
#include <vector>

namespace torch_opencl {

// One call of an operator on the host with its float16, bfloat16 and complex32 arguments as float32 and complex64.
class Widening {
 public:
  explicit Widening(c10::ArrayRef<c10::IValue> arguments);

  // Returns true if there are such arguments, and none in 32 or 64 bits, whose dtype the results might have.
  bool applies() const {
    return narrow_.has_value();
  }

  // The arguments to call the operator with.
  std::vector<c10::IValue> arguments();

  // Converts the results, and arguments that the operator wrote to, back to 16 bits.
  void narrow(const c10::FunctionSchema& schema, torch::jit::Stack& stack) const;

 private:
  struct Pair {
    at::Tensor narrow, wide;
  };

  at::Tensor narrowed(const at::Tensor& result) const;

  std::vector<c10::IValue> arguments_;
  std::vector<Pair> pairs_;
  std::optional<at::ScalarType> narrow_; // for real values
};

} // namespace torch_opencl
