// 16-bit floats in operators whose CPU kernels support only 32 bits.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <optional>
#include <vector>

namespace torch_opencl {

// One call of an operator on the host, with float16, bfloat16 and complex32 arguments as float32 and complex64.
class Widening {
 public:
  explicit Widening(c10::ArrayRef<c10::IValue> arguments);

  // Returns true if there are such arguments, and none in 32 or 64 bits: the results might have their dtype.
  bool applies() const {
    return narrow_.has_value();
  }

  // The converted arguments, for the operator's call.
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
