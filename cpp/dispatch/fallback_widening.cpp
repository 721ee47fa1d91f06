#include "dispatch/fallback_widening.h"

#include <ATen/core/Tensor.h>

#include "dispatch/fallback_arguments.h"

namespace torch_opencl {
namespace {

// float16 for complex32.
std::optional<at::ScalarType> narrow_dtype(at::ScalarType dtype) {
  if (dtype == at::kComplexHalf) return at::kHalf;
  if (at::isReducedFloatingType(dtype) && c10::elementSize(dtype) == 2) return dtype;
  return std::nullopt;
}

} // namespace

Widening::Widening(c10::ArrayRef<c10::IValue> arguments) {
  bool mixed = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      const at::ScalarType dtype = tensor.scalar_type();
      if (c10::isIntegralType(dtype, /*includeBool=*/true)) return;
      const auto narrow = narrow_dtype(dtype);
      mixed |= !narrow.has_value() || (narrow_.has_value() && narrow_ != narrow);
      narrow_ = narrow;
    });
  }
  if (mixed) narrow_.reset();
  if (applies()) arguments_ = arguments.vec();
}

std::vector<c10::IValue> Widening::arguments() {
  std::vector<c10::IValue> wide = arguments_;
  for (c10::IValue& argument : wide) {
    map_tensors(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !narrow_dtype(tensor.scalar_type()).has_value()) return tensor;
      const auto dtype = tensor.is_complex() ? at::kComplexFloat : at::kFloat;
      return pairs_.emplace_back(Pair{tensor, tensor.to(dtype)}).wide;
    });
  }
  return wide;
}

void Widening::narrow(const c10::FunctionSchema& schema, torch::jit::Stack& stack) const {
  for (size_t i = 0; i < arguments_.size(); i++) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    for_each_tensor(arguments_[i], [&](const at::Tensor& written) {
      for (const Pair& pair : pairs_) {
        if (pair.narrow.is_same(written)) written.resize_(pair.wide.sizes()).copy_(pair.wide);
      }
    });
  }
  for (size_t i = stack.size() - schema.returns().size(); i < stack.size(); i++) {
    map_tensors(stack[i], [&](const at::Tensor& tensor) { return narrowed(tensor); });
  }
}

at::Tensor Widening::narrowed(const at::Tensor& result) const {
  if (!result.defined()) return result;
  for (const Pair& pair : pairs_) {
    if (pair.wide.is_same(result)) return pair.narrow;
  }
  if (result.scalar_type() == at::kFloat) return result.to(*narrow_);
  // PyTorch has no complex dtype of two bfloat16.
  return result.scalar_type() == at::kComplexFloat && narrow_ == at::kHalf ? result.to(at::kComplexHalf) : result;
}

} // namespace torch_opencl
