// Calls with few elements, which ATen's own function for the CPU computes sooner than a kernel of ours is enqueued.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "host_dtypes.h"
#include "one_thread.h"

namespace torch_opencl {

// The device tensors of one call, for the host to read and write where they are.
class HostMemory {
 public:
  // Of the product of the sizes of indices, so that it does not overflow.
  static constexpr int64_t kMaxPositions = int64_t{1} << 31;

  // Those that the host computes as kernels do, or all, for casts.
  enum class Dtypes { Computed, All };

  // What tells how long a call takes.
  enum class Work {
    Estimated, // the elements of its tensors, and of a result with the most rows and the most columns that they have
    Elements,  // the elements of its tensors: no result is larger, and each is touched once or a few times
    Matmul,    // the multiplications of its last two inputs, and the elements of their product
    Counted,   // multiplications and elements of a result that the caller has counted
  };

  // Multiplications up to which one thread of the host takes less time than enqueueing a kernel and waiting for it.
  static constexpr int64_t kMaxMultiplications = int64_t{1} << 21;

  // Elements of a result with which it does: of narrow matrices, or of many rows of a small table.
  static constexpr int64_t kMaxResultElements = (int64_t{1} << 19) - 1;

  explicit HostMemory(Work work = Work::Estimated, Dtypes dtypes = Dtypes::Computed) : work_(work), dtypes_(dtypes) {}

  template <class T>
  void add(const T&) {}
  void add(const at::Tensor& tensor);
  // One that is written to.
  void add(at::Tensor& output) {
    const size_t position = storages_.size();
    const Operands operands = operands_;
    add(std::as_const(output));
    operands_ = operands;
    if (storages_.size() > position) outputs_.push_back(position);
  }
  void add(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) add(*tensor);
  }
  // Of one dtype: the CPU's function may have changed the first ones before it refuses the dtype of another.
  void add(const at::TensorList& tensors) {
    for (size_t i = 0; i < tensors.size(); i++) {
      const at::Tensor& tensor = tensors[i];
      is_small_ = is_small_ && tensor.scalar_type() == tensors.front().scalar_type();
      lists_are_alike_ = lists_are_alike_ && is_laid_out_as(tensor, i < lists_.size() ? lists_[i] : tensor);
      add(tensor);
    }
    if (lists_.empty()) lists_ = tensors;
  }
  void add(const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) add(tensor);
  }
  // Indices, which ATen takes from the host too.
  void add(const c10::List<std::optional<at::Tensor>>& tensors) {
    int64_t positions = 1;
    at::Tensor previous;
    for (const std::optional<at::Tensor> tensor : tensors) {
      if (!tensor.has_value() || !tensor->defined()) continue;
      if (!tensor->is_cpu()) add(*tensor);
      // Those of other sizes are broadcast.
      const bool is_same = previous.defined() && tensor->sizes().equals(previous.sizes());
      if (!is_same) positions *= std::max<int64_t>(tensor->numel(), 1);
      previous = *tensor;
      if (positions > kMaxPositions) is_small_ = false;
    }
    rows_ = std::max(rows_, is_small_ ? positions : 1);
  }

  // Counts the elements of a result whose sizes are an argument: of all dimensions, or of those behind the batch and
  // the channels of an input, which has been added.
  template <class T>
  void expect(const T&) {}
  void expect(c10::SymIntArrayRef sizes);

  // Returns true if the host may use all of them now, few elements of dtypes that it computes as kernels do.
  bool open();

  // Arguments with the device's tensors as the CPU's, in the order in which they were added.
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

  // Adds tensors, and makes views of them for functions of ATen; none if the host may not use them now.
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
  // if any two arguments share one. The views have storages of their own, so ATen would not notice the overlap.
  bool has_aliases() const;

  // Returns true if the n-th tensors of all lists are dense, with the same strides, but for single elements. Fused
  // optimizers of the CPU take that for granted: they would write between the elements of a view.
  bool are_lists_alike() const {
    return lists_are_alike_;
  }

  // Of the first tensor.
  at::ScalarType dtype() const {
    return dtype_;
  }
  bool has_one_dtype() const {
    return has_one_dtype_;
  }

  // Makes a call that only kernels compute, and waits for them: everything behind it would have to be enqueued
  // otherwise.
  template <class Call>
  auto waited(Call&& call) const -> decltype(call()) {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      wait();
    } else {
      decltype(call()) result = call();
      wait();
      return result;
    }
  }

 private:
  // Sizes of the last two inputs: of the operands of a matmul.
  struct Operands {
    int64_t left = 1, left_rows = 1, right = 1, right_columns = 1;
  };

  static bool is_laid_out_as(const at::Tensor& tensor, const at::Tensor& other) {
    return tensor.numel() == 1 || (tensor.is_non_overlapping_and_dense() && tensor.strides() == other.strides());
  }

  void wait() const;
  int64_t max_elements() const;
  bool has_little_work() const;

  template <class List>
  std::vector<at::Tensor> view_list(const List& tensors) {
    std::vector<at::Tensor> views;
    for (const at::Tensor& tensor : tensors) views.push_back(view(tensor));
    return views;
  }

  Work work_;
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
  at::TensorList lists_; // the first of the call's lists
  bool is_small_ = true, has_one_dtype_ = true, lists_are_alike_ = true;
};

// What tells how long a call of an op takes.
consteval HostMemory::Work work_of(std::string_view op) {
  using Work = HostMemory::Work;
  constexpr auto is_one_of = [](std::string_view op, auto... names) { return ((op == names) || ...); };
  if (is_one_of(op, "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_addmm_activation", "aten::addmv"))
    return Work::Matmul;
  if (is_one_of(op, "aten::dot", "aten::vdot")) return Work::Matmul;
  if (is_one_of(op, "aten::convolution", "aten::convolution_backward")) return Work::Counted;
  if (is_one_of(op, "aten::cat", "aten::gather", "aten::native_batch_norm", "aten::native_batch_norm_backward"))
    return Work::Elements;
  return op.starts_with("aten::scatter") || op.starts_with("aten::index_add") ? Work::Elements : Work::Estimated;
}

// What an op makes: a tensor, or several.
template <class T>
inline constexpr bool kIsResult = std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::vector<at::Tensor>>;
template <class... T>
inline constexpr bool kIsResult<std::tuple<T...>> = (std::is_same_v<T, at::Tensor> && ...);

// A call of `Op` on the host.
template <class Op, class Schema = typename Op::schema>
struct HostCall;

template <class Op, class Return, class... Args>
struct HostCall<Op, Return(Args...)> {
  // Outputs that are given may have to be resized, which memory of the device can't be on the host. So wrappers ask
  // only for ops that make results, and those in place; that of ops with `out=` asks once it has resized outputs.
  static constexpr bool kIsPossible = kIsResult<Return> || std::string_view(Op::name).ends_with('_');

  static constexpr HostMemory::Work kWork = work_of(Op::name);

  // Of an op in place the result is an argument.
  struct Nothing {};
  using Result = std::conditional_t<kIsResult<Return>, Return, Nothing>;

  // What the host computes, if it may compute it now.
  static std::optional<Result> attempt(Args... args) {
    HostMemory memory(kWork);
    (memory.add(args), ...);
    return memory.open() ? attempt(memory, args...) : std::nullopt;
  }

  // The same with the tensors of the arguments, which the host may use, unless the CPU lacks the op or the dtype.
  static std::optional<Result> attempt(HostMemory& memory, Args&... args) {
    static const bool is_on_cpu = [] {
      const auto op = c10::Dispatcher::singleton().findSchema({Op::name, Op::overload_name});
      return op.has_value() && op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    }();
    static UnsupportedDtypes unsupported;
    if (!is_on_cpu || unsupported.contains(memory.dtype())) return std::nullopt;
    if (!kIsResult<Return> && (memory.has_aliases() || !memory.are_lists_alike())) return std::nullopt;
    try {
      return run(memory, args...);
    } catch (const c10::NotImplementedError&) {
      // Of several dtypes nobody says which one it was.
      if (memory.has_one_dtype()) unsupported.insert(memory.dtype());
      return std::nullopt;
    }
  }

 private:
  static Result run(HostMemory& memory, Args&... args) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const OneThread one_thread;
    // In braces they are evaluated in order.
    auto views = std::tuple<decltype(memory.view(args))...>{memory.view(args)...};
    return [&]<size_t... I>(std::index_sequence<I...>) -> Result {
      constexpr c10::DispatchKeySet keys(c10::DispatchKey::CPU);
      if constexpr (kIsResult<Return>) {
        return to_device(memory, Op::redispatch(keys, pass<Args>(std::get<I>(views))...));
      } else {
        Op::redispatch(keys, pass<Args>(std::get<I>(views))...);
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

} // namespace torch_opencl
