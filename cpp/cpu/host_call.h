// Small calls: on CPU devices, run ATen's CPU kernel on mapped memory when that is cheaper than enqueueing ours.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <array>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "cpu/one_thread.h"
#include "dispatch/op_row.h"
#include "runtime/tensor_args.h"

namespace torch_opencl {

// The device tensors of one call, which the host reads and writes in place.
class HostMemory {
 public:
  // Limits the product of the sizes of indices, so that it does not overflow.
  static constexpr int64_t kMaxPositions = int64_t{1} << 31;

  // Dtypes that the host computes as kernels do, or all dtypes, for casts.
  enum class Dtypes { Computed, All };

  explicit HostMemory(Cost cost = Cost::Table, Dtypes dtypes = Dtypes::Computed) : cost_(cost), dtypes_(dtypes) {}

  void add(const at::Tensor& tensor);
  // Adds all tensors of a call.
  void add(const TensorArgs& args);

  // Returns true if the host may use all tensors now: they have few elements, and dtypes that it computes as kernels
  // do.
  bool open();

  // Replaces an argument's device tensors by CPU tensors. Call it in the order in which the tensors were added.
  template <class T>
  const T& view(const T& value) {
    return value;
  }
  at::Tensor view(const at::Tensor& tensor);
  std::optional<at::Tensor> view(const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() ? std::optional<at::Tensor>(view(*tensor)) : std::nullopt;
  }
  std::vector<at::Tensor> view(const at::TensorList& tensors) {
    return view_list(tensors);
  }
  std::vector<at::Tensor> view(const at::ITensorListRef& tensors) {
    return view_list(tensors);
  }
  c10::List<std::optional<at::Tensor>> view(const c10::List<std::optional<at::Tensor>>& tensors) {
    c10::List<std::optional<at::Tensor>> views;
    for (const auto& tensor : tensors) views.push_back(view(std::optional<at::Tensor>(tensor)));
    return views;
  }

  // Adds tensors and returns views of them for ATen's functions, or nullopt if the host may not use them now.
  template <size_t kCount>
  std::optional<std::array<at::Tensor, kCount>> views(const std::array<at::Tensor, kCount>& tensors) {
    for (const at::Tensor& tensor : tensors) add(tensor);
    if (!open()) return std::nullopt;
    std::array<at::Tensor, kCount> views;
    for (size_t i = 0; i < kCount; ++i) views[i] = view(tensors[i]);
    return views;
  }

  // A result on the device.
  at::Tensor to_device(const at::Tensor& result) const;

  // Returns true if a tensor that the op writes to shares its storage with another argument, or, if it writes to lists,
  // if any two arguments share one. The views have separate storages, so ATen would not notice the overlap.
  bool has_aliases() const;

  // Returns true if the n-th tensors of all lists are dense and have the same strides, apart from single elements. The
  // CPU's fused optimizers rely on that: they would write between the elements of a view.
  bool are_lists_alike() const {
    return lists_are_alike_;
  }

  // The dtype of the first tensor.
  at::ScalarType dtype() const {
    return dtype_;
  }
  bool has_one_dtype() const {
    return has_one_dtype_;
  }

 private:
  // Sizes of the last two inputs, which are the operands of a matmul.
  struct Operands {
    int64_t left = 1, left_rows = 1, right = 1, right_columns = 1;
  };

  void add_output(const at::Tensor& tensor);
  void add_lists(c10::ArrayRef<at::TensorList> lists);
  void add_indices(c10::ArrayRef<TensorArg> indices);
  void expect(c10::SymIntArrayRef sizes);
  cpu_policy::Work work() const;

  template <class List>
  std::vector<at::Tensor> view_list(const List& tensors) {
    std::vector<at::Tensor> views;
    for (const at::Tensor& tensor : tensors) views.push_back(view(tensor));
    return views;
  }

  Cost cost_;
  Dtypes dtypes_;
  c10::SmallVector<size_t, 8> addresses_;
  c10::SmallVector<const void*, 8> storages_;
  c10::SmallVector<size_t, 3> outputs_;
  size_t viewed_ = 0;
  std::optional<c10::Device> device_;
  at::ScalarType dtype_ = at::ScalarType::Undefined;
  int64_t elements_ = 0;
  int64_t rows_ = 1, columns_ = 1;
  Operands operands_;
  int64_t dims_ = 0, planes_ = 1;
  bool is_small_ = true, has_one_dtype_ = true, lists_are_alike_ = true;
};

// True for results that an op creates: a tensor, or several.
template <class T>
inline constexpr bool kIsResult = std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::vector<at::Tensor>>;
template <class... T>
inline constexpr bool kIsResult<std::tuple<T...>> = (std::is_same_v<T, at::Tensor> && ...);

// Calls of ATen's CPU kernel for a signature, on device memory.
template <class Schema>
struct HostCall;

template <class Return, class... Args>
struct HostCall<Return(Args...)> {
  using Op = c10::TypedOperatorHandle<Return(Args...)>;

  // The results, or `Nothing` for an op that writes to its arguments.
  struct Nothing {};
  using Result = std::conditional_t<kIsResult<Return>, Return, Nothing>;

  // The results of the CPU kernel, unless the device's memory may not be used now or the CPU lacks the op or the dtype.
  static std::optional<Result> attempt(const OpInfo& op, Args... args) {
    HostMemory memory(op.cost);
    memory.add(TensorArgs(args...));
    return memory.open() ? attempt(op, memory, args...) : std::nullopt;
  }

  // Calls the CPU kernel with memory that is already open.
  static std::optional<Result> attempt(const OpInfo& op, HostMemory& memory, Args&... args) {
    if (!op.has_cpu_kernel || op.refused.contains(memory.dtype())) return std::nullopt;
    if (!kIsResult<Return> && (memory.has_aliases() || !memory.are_lists_alike())) return std::nullopt;
    try {
      return run(op, memory, args...);
    } catch (const c10::NotImplementedError&) {
      // With several dtypes the error does not name the unsupported one.
      if (memory.has_one_dtype()) op.refused.insert(memory.dtype());
      return std::nullopt;
    }
  }

 private:
  static Result run(const OpInfo& op, HostMemory& memory, Args&... args) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const OneThread one_thread;
    const Op typed = op.handle().template typed<Return(Args...)>();
    // Braces evaluate the views in order.
    auto views = std::tuple<decltype(memory.view(args))...>{memory.view(args)...};
    return [&]<size_t... I>(std::index_sequence<I...>) -> Result {
      constexpr c10::DispatchKeySet keys(c10::DispatchKey::CPU);
      if constexpr (kIsResult<Return>) {
        return to_device(memory, typed.redispatch(keys, pass<Args>(std::get<I>(views))...));
      } else {
        typed.redispatch(keys, pass<Args>(std::get<I>(views))...);
        return Nothing();
      }
    }(std::index_sequence_for<Args...>());
  }

  template <class Argument, class View>
  static decltype(auto) pass(View& view) {
    using Plain = std::remove_cvref_t<Argument>;
    if constexpr (std::is_same_v<View, std::vector<at::Tensor>>) {
      return Plain(at::TensorList(view));
    } else {
      return (view);
    }
  }

  static at::Tensor to_device(const HostMemory& memory, const at::Tensor& result) {
    return memory.to_device(result);
  }
  static std::vector<at::Tensor> to_device(const HostMemory& memory, const std::vector<at::Tensor>& results) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& result : results) copies.push_back(memory.to_device(result));
    return copies;
  }
  template <class... T>
  static std::tuple<T...> to_device(const HostMemory& memory, const std::tuple<T...>& results) {
    return std::apply([&](const auto&... result) { return std::tuple<T...>{memory.to_device(result)...}; }, results);
  }
};

template <class Op, Cost kCost>
const OpInfo& info() {
  static const OpInfo op({.cost = kCost}, Op::name, Op::overload_name);
  return op;
}

// Calls an op for an entry that decides itself when the CPU kernel is worthwhile. `kCost` says what is counted.
template <class Op, Cost kCost, class... Args>
auto attempt_on_host(const Args&... args) {
  return HostCall<typename Op::schema>::attempt(info<Op, kCost>(), args...);
}

} // namespace torch_opencl
