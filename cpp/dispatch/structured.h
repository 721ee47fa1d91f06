// ATen's structured kernels for this device: PyTorch's own `meta` checks shapes, promotes dtypes and determines the
// outputs; `Outputs` creates them, or checks the given ones.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "runtime/compat.h"

namespace torch_opencl {

// Resizes an out= argument, with PyTorch's warning, and copies a result to it.
void store_result(const at::Tensor& out, const at::Tensor& result);

// The outputs of one call.
class Outputs {
 public:
  enum class Source : uint8_t {
    New,       // f(...)
    ShapeOnly, // one expanded element each, because only the shape is used
    Self,      // f_(self, ...)
    Given,     // f(..., out=)
  };

  explicit Outputs(size_t count, Source source = Source::New) : source_(source), tensors_(count) {}
  Outputs(Source source, std::initializer_list<at::Tensor> given) : source_(source), tensors_(given) {}

  // Creates output `i`, or resizes or checks the given one. Empty strides mean contiguous. `exact`: the kernel needs
  // these strides.
  void set(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options, bool exact);

  // The tensor that the kernel writes to: a proxy if the given output lacks the strides that the kernel needs.
  const at::Tensor& get(int64_t i) const {
    return proxy(i).defined() ? proxy(i) : tensors_[static_cast<size_t>(i)];
  }

  // Returns true if the op writes to contiguous outputs only. Some CPU functions, such as softmax, rely on that: they
  // would write elsewhere, even beyond the memory of an expanded output.
  bool are_contiguous() const;

  // Copies proxies to their outputs.
  void finish() const;

  at::Tensor take(size_t i) {
    return std::move(tensors_[i]);
  }

 private:
  const at::Tensor& proxy(int64_t i) const;

  Source source_;
  c10::SmallVector<at::Tensor, 3> tensors_;
  // Empty, or one for each output.
  c10::SmallVector<at::Tensor, 1> proxies_;
};

// An instance of a structured kernel with its outputs.
template <class Kernel>
struct Structured final : Kernel {
  explicit Structured(Outputs given) : outputs(std::move(given)) {}

  void set_output_strided(
      int64_t i,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options TORCH_OPENCL_NAMES_PARAMETER) override {
    outputs.set(i, sizes, strides, options, /*exact=*/true);
    announce(i, sizes, strides, options TORCH_OPENCL_NAMES_ARGUMENT);
  }

  void set_output_raw_strided(
      int64_t i,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options TORCH_OPENCL_NAMES_PARAMETER) override {
    outputs.set(i, sizes, strides, options, /*exact=*/false);
    announce(i, sizes, strides, options TORCH_OPENCL_NAMES_ARGUMENT);
  }

  const at::Tensor& maybe_get_output(int64_t i) override {
    return outputs.get(i);
  }

  Outputs outputs;

 private:
  // A TensorIterator keeps its own list of its outputs.
  void announce(
      int64_t i,
      at::IntArrayRef sizes,
      at::IntArrayRef strides,
      at::TensorOptions options TORCH_OPENCL_NAMES_PARAMETER) {
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Kernel>) {
      at::TensorIteratorBase::set_output_raw_strided(i, sizes, strides, options TORCH_OPENCL_NAMES_ARGUMENT);
    }
  }
};

} // namespace torch_opencl
