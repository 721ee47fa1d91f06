// ATen's structured kernels for this device: PyTorch's own `meta` checks shapes, promotes dtypes and decides the
// outputs; the three shells below only say where outputs come from.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <algorithm>
#include <array>
#include <optional>

#include "compat.h"

namespace torch_opencl {

// A fresh tensor of the given geometry; empty strides mean contiguous.
at::Tensor create_output(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);
// Checks an out= argument, and resizes it with PyTorch's warning.
void resize_given_output(
    const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);
// Checks that an in-place op can write its result into self.
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options);
// Resizes an out= argument, with PyTorch's warning, and copies a result to it.
void store_result(const at::Tensor& out, const at::Tensor& result);
// A stand-in with the strides that the kernel insists on, where the given output has others.
std::optional<at::Tensor> make_proxy(const at::Tensor& out, at::IntArrayRef strides);

// Base of the shells. `Shell` provides `void make_output(i, sizes, strides, options)`, which fills outputs[i].
template <class Kernel, int kOutputs, class Shell>
struct Structured : Kernel {
  using Strides = at::IntArrayRef;

  void set_output_strided(
      int64_t i,
      at::IntArrayRef sizes,
      Strides strides,
      at::TensorOptions options TORCH_OPENCL_NAMES_PARAMETER) override {
    static_cast<Shell*>(this)->make_output(i, sizes, strides, options);
    if (auto proxy = make_proxy(outputs[i], strides)) proxies[i] = std::move(*proxy);
    announce(i, sizes, strides, options TORCH_OPENCL_NAMES_ARGUMENT);
  }

  void set_output_raw_strided(
      int64_t i,
      at::IntArrayRef sizes,
      Strides strides,
      at::TensorOptions options TORCH_OPENCL_NAMES_PARAMETER) override {
    static_cast<Shell*>(this)->make_output(i, sizes, strides, options);
    announce(i, sizes, strides, options TORCH_OPENCL_NAMES_ARGUMENT);
  }

  const at::Tensor& maybe_get_output(int64_t i) override {
    return proxies[i].defined() ? proxies[i] : outputs[i];
  }

  // Returns true if the op writes to contiguous outputs only. Some of the CPU's functions, such as softmax, take that
  // for granted, and would write elsewhere, even beyond the memory of an expanded output.
  bool has_contiguous_outputs() const {
    return std::none_of(proxies.begin(), proxies.end(), [](const at::Tensor& proxy) { return proxy.defined(); }) &&
        std::all_of(outputs.begin(), outputs.end(), [](const at::Tensor& output) { return output.is_contiguous(); });
  }

  // Copies stand-ins to the outputs they stand for.
  void finish() {
    for (int i = 0; i < kOutputs; i++) {
      if (proxies[i].defined()) outputs[i].copy_(proxies[i]);
    }
  }

  std::array<at::Tensor, kOutputs> outputs;
  std::array<at::Tensor, kOutputs> proxies;

 private:
  // A TensorIterator keeps its own notion of its outputs.
  void announce(
      int64_t i, at::IntArrayRef sizes, Strides strides, at::TensorOptions options TORCH_OPENCL_NAMES_PARAMETER) {
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Kernel>) {
      at::TensorIteratorBase::set_output_raw_strided(i, sizes, strides, options TORCH_OPENCL_NAMES_ARGUMENT);
    }
  }
};

// f(...) -> new tensors
template <class Kernel, int kOutputs>
struct Functional final : Structured<Kernel, kOutputs, Functional<Kernel, kOutputs>> {
  void make_output(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    this->outputs[i] = create_output(sizes, strides, options);
  }
};

// f_(self, ...)
template <class Kernel>
struct Inplace final : Structured<Kernel, 1, Inplace<Kernel>> {
  explicit Inplace(const at::Tensor& self) {
    this->outputs[0] = self;
  }
  void make_output(int64_t i, at::IntArrayRef sizes, at::IntArrayRef, const at::TensorOptions& options) {
    check_inplace(this->outputs[i], sizes, options);
  }
};

// f(..., out=)
template <class Kernel, int kOutputs>
struct Out final : Structured<Kernel, kOutputs, Out<Kernel, kOutputs>> {
  explicit Out(std::array<at::Tensor, kOutputs> given) {
    this->outputs = std::move(given);
  }
  void make_output(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
    resize_given_output(this->outputs[i], sizes, strides, options);
  }
};

} // namespace torch_opencl
