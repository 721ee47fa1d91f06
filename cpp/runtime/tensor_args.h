// The tensors among the arguments of one call, collected once for all checks.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/SmallVector.h>
#include <list>
#include <optional>

namespace torch_opencl {

struct TensorArg {
  enum class Use : uint8_t {
    Input,
    Output,      // a `Tensor&`: the op writes to it
    Listed,      // from a `Tensor[]`: an in-place op may write to it
    ListedInput, // from a list of inputs that may have different dtypes
    Index,       // from a list of optional indices
  };

  const at::Tensor* tensor;
  Use use;
};

// Borrows the arguments: it must not outlive the call.
class TensorArgs {
 public:
  template <class... Args>
  explicit TensorArgs(Args&... args) {
    (add(args), ...);
  }

  // In the order of the arguments, including undefined tensors.
  const c10::SmallVector<TensorArg, 6>& tensors() const {
    return tensors_;
  }
  const c10::SmallVector<at::TensorList, 2>& lists() const {
    return lists_;
  }
  // Arguments that may be the sizes of a result.
  const c10::SmallVector<c10::SymIntArrayRef, 2>& sizes() const {
    return sizes_;
  }
  // The generator's device type, if one was given.
  std::optional<c10::DeviceType> generator() const {
    return generator_;
  }

 private:
  using Use = TensorArg::Use;

  template <class T>
  void add(const T&) {}
  void add(const at::Tensor& tensor) {
    tensors_.push_back({&tensor, Use::Input});
  }
  void add(at::Tensor& output) {
    tensors_.push_back({&output, Use::Output});
  }
  void add(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) add(*tensor);
  }
  void add(const at::TensorList& list) {
    for (const at::Tensor& tensor : list) tensors_.push_back({&tensor, Use::Listed});
    lists_.push_back(list);
  }
  void add(const at::ITensorListRef& list) {
    for (const at::Tensor& tensor : list) tensors_.push_back({&tensor, Use::ListedInput});
  }
  void add(const c10::List<std::optional<at::Tensor>>& indices) {
    for (const std::optional<at::Tensor> index : indices) {
      if (index.has_value()) tensors_.push_back({&owned_.emplace_back(*index), Use::Index});
    }
  }
  void add(const c10::SymIntArrayRef& sizes) {
    sizes_.push_back(sizes);
  }
  void add(const std::optional<at::Generator>& generator) {
    if (generator.has_value() && generator->defined()) generator_ = generator->device().type();
  }

  c10::SmallVector<TensorArg, 6> tensors_;
  c10::SmallVector<at::TensorList, 2> lists_;
  c10::SmallVector<c10::SymIntArrayRef, 2> sizes_;
  std::list<at::Tensor> owned_;
  std::optional<c10::DeviceType> generator_;
};

} // namespace torch_opencl
