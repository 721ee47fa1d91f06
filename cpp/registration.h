// How rows of native_functions.yaml become dispatcher kernels. Generated code uses the macros at the end.
//
// Each wrapper takes its signature from at::_ops, checks that the tensors belong together, sends dtypes that the row
// does not list to the CPU, and calls PyTorch's meta and the kernel. A refusal for want of float64 gets the op's name.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>
#include <string_view>
#include <tuple>

#include "convert.h"
#include "device_check.h"
#include "error.h"
#include "fallback.h"
#include "host_call.h"
#include "host_on_cpu.h"
#include "pointwise.h"
#include "structured.h"
#include "tensor_arg.h"

namespace torch_opencl {

// Checks every tensor among the arguments of one call.
class ArgumentCheck {
 public:
  ArgumentCheck(uint64_t dtypes, std::string_view op)
      : dtypes_(dtypes), devices_(op), crosses_devices_(crosses_devices(op)), is_inplace_(is_inplace(op)) {}

  // Returns true if all dtypes are ones the row lists. Raises when tensors live on different devices, and where
  // elements of an output share memory.
  template <class... Args>
  bool operator()(Args&... args) {
    (look(args), ...);
    check_generator();
    devices_.require_device();
    return supported_;
  }

 private:
  template <class T>
  void look(const T&) {}
  // Copies are between two devices by nature; lists may hold tensors of several, which meet in pairs.
  static bool crosses_devices(std::string_view op) {
    return op.starts_with("aten::_copy_from") || op.starts_with("aten::copy_") || op.starts_with("aten::_foreach_");
  }
  // record_stream writes no element.
  static bool is_inplace(std::string_view op) {
    return op.ends_with('_') || op == "aten::record_stream";
  }
  void look(const at::Tensor& tensor);
  // An output that is written to: no scalar from the host, however small.
  void look(at::Tensor& output) {
    if (!crosses_devices_) devices_.add(output.device());
    materialize(output);
    look(std::as_const(output));
    // Ops in place have rules of their own.
    if (!is_inplace_) check_overlap(output);
  }
  void look(const std::optional<at::Generator>& generator) {
    if (generator.has_value() && generator->defined()) generator_ = generator->device().type();
  }
  // A generator of this device brings calls here whose tensors are all on the host.
  void check_generator() const;
  static void check_overlap(const at::Tensor& output);
  void look(const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) look(*tensor);
  }
  void look(const at::TensorList& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (is_inplace_) materialize(tensor);
      look(tensor);
    }
  }
  // Indices, of any dtype that ATen accepts, may come from the host: it moves them.
  void look(const c10::List<std::optional<at::Tensor>>& indices);
  void look(const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) look(tensor);
  }

  uint64_t dtypes_;
  DeviceCheck devices_;
  bool crosses_devices_, is_inplace_;
  std::optional<c10::DeviceType> generator_;
  bool supported_ = true;
};

// Marks a set of dtypes as those that inputs may be promoted to. Such a kernel loads any of `kLoadable`: bool, and the
// usual integers, floats and complex numbers.
constexpr uint64_t kPromotes = uint64_t{1} << 63;
constexpr uint64_t kLoadable = 0x8eff;

// Marks the dtypes of an op whose calls with few elements the host may compute, or waits for (host_call.h).
constexpr uint64_t kSmallOnHost = uint64_t{1} << 62;
constexpr uint64_t kSmallWaits = uint64_t{1} << 61;
// Marks those of an op that is told the sizes of its result.
constexpr uint64_t kGivenSizes = uint64_t{1} << 60;

// The same for ops with `out`, whose body decides whether the host computes a small call, as `meta` must first resize
// the outputs: the wrapper only waits for the kernels of such a call.
constexpr uint64_t waits_only(uint64_t dtypes) {
  return (dtypes & kSmallOnHost) != 0 ? (dtypes & ~kSmallOnHost) | kSmallWaits : dtypes;
}

// The dtype that PyTorch promotes the inputs of one call to.
class Promotion {
 public:
  // An op that works in-place promotes what it writes to, too.
  Promotion(uint64_t dtypes, std::string_view op) : dtypes_(dtypes), is_inplace_(op.ends_with('_')) {}

  // Returns true if it is one of the set, as are the dtypes of outputs.
  template <class... Args>
  bool operator()(Args&... args) {
    if ((dtypes_ & kPromotes) == 0) return false;
    (look(args), ...);
    return is_loadable_ && has(dtypes_, at::native::result_type(state_));
  }

 private:
  template <class T>
  void look(const T&) {}
  void look(const at::Tensor& input);
  void look(at::Tensor& output) {
    if (is_inplace_) look(std::as_const(output));
    is_loadable_ = is_loadable_ && has(dtypes_, output.scalar_type());
  }
  void look(const std::optional<at::Tensor>& input) {
    if (input.has_value()) look(*input);
  }
  static bool has(uint64_t dtypes, at::ScalarType dtype) {
    const auto code = static_cast<unsigned>(dtype);
    return code < 60 && ((dtypes >> code) & 1u) != 0;
  }

  uint64_t dtypes_;
  bool is_inplace_;
  bool is_loadable_ = true;
  at::native::ResultTypeState state_;
};

// Outputs of an out= variant: its last arguments, returned as a tuple of references.
template <class Op, class Schema = typename Op::schema>
struct Wrapper;

template <class Op, class Return, class... Args>
struct Wrapper<Op, Return(Args...)> {
  static Return fall_back(Args... args) {
    return at::native::call_fallback_fn_symint<&cpu_fallback, Op>::call(std::forward<Args>(args)...);
  }

  // Calls `kBody`, one of the functions below, with dtypes that the row lists, and the CPU with others.
  template <Return (*kBody)(Args&...), uint64_t kDtypes>
  static Return call(Args... args) try {
    if (!ArgumentCheck(kDtypes, Op::name)(args...) && !Promotion(kDtypes, Op::name)(args...))
      return fall_back(std::forward<Args>(args)...);
    if constexpr ((kDtypes & (kSmallOnHost | kSmallWaits)) != 0) {
      HostMemory memory(HostCall<Op>::kWork);
      (memory.add(args), ...);
      if constexpr ((kDtypes & kGivenSizes) != 0) (memory.expect(args), ...);
      if (memory.open()) {
        if constexpr ((kDtypes & kSmallOnHost) != 0 && HostCall<Op>::kIsPossible) {
          if (auto result = HostCall<Op>::attempt(memory, args...)) {
            if constexpr (kIsResult<Return>) {
              return *std::move(result);
            } else if constexpr (std::is_void_v<Return>) {
              return;
            } else {
              return std::get<0>(std::tie(args...));
            }
          }
        }
        return memory.waited([&]() -> Return { return kBody(args...); });
      }
    }
    return kBody(args...);
  } catch (const NoFloat64& refusal) {
    raise(refusal, Op::name);
  }

  // A structured op that makes its outputs.
  template <class Kernel, int kOutputs>
  static Return functional(Args&... args) {
    Functional<Kernel, kOutputs> kernel;
    kernel.meta(convert_structured(args)...);
    [&]<size_t... I>(std::index_sequence<I...>) {
      kernel.impl(convert_structured(args)..., kernel.maybe_get_output(I)...);
    }(std::make_index_sequence<kOutputs>());
    kernel.finish();
    if constexpr (kOutputs == 1) {
      return std::move(kernel.outputs[0]);
    } else {
      return std::apply([](auto&... output) { return Return(std::move(output)...); }, kernel.outputs);
    }
  }

  // A structured op that writes into its first argument.
  template <class Kernel>
  static Return inplace(Args&... args) {
    at::Tensor& self = std::get<0>(std::tie(args...));
    Inplace<Kernel> kernel(self);
    kernel.meta(convert_structured(args)...);
    kernel.impl(convert_structured(args)..., kernel.maybe_get_output(0));
    kernel.finish();
    return self;
  }

  // A structured op with out= arguments, which `meta` has resized before the host may compute a small call.
  template <class Kernel, int kOutputs, uint64_t kDtypes>
  static Return out(Args&... args) {
    constexpr size_t kInputs = sizeof...(Args) - kOutputs;
    auto all = std::tie(args...);
    return [&]<size_t... In, size_t... O>(std::index_sequence<In...>, std::index_sequence<O...>) -> Return {
      Out<Kernel, kOutputs> kernel({std::get<kInputs + O>(all)...});
      kernel.meta(convert_structured(std::get<In>(all))...);
      constexpr bool kIsSmallOnHost = (kDtypes & kSmallOnHost) != 0;
      if (!kIsSmallOnHost || !kernel.has_contiguous_outputs() || !HostCall<Op>::attempt(args...)) {
        kernel.impl(convert_structured(std::get<In>(all))..., kernel.maybe_get_output(O)...);
      }
      kernel.finish();
      if constexpr (kOutputs == 1) {
        return std::get<kInputs>(all);
      } else {
        return Return(std::get<kInputs + O>(all)...);
      }
    }(std::make_index_sequence<kInputs>(), std::make_index_sequence<kOutputs>());
  }

  // Any other op: `Function` is a stateless callable around an ATen or a native function.
  template <class Function>
  static Return function(Args&... args) {
    return Function()(convert(args)...);
  }

  // An op whose out= variant is `Function`, which gets the outputs that `Allocate` makes.
  template <class Function, class Allocate>
  static Return allocating(Args&... args) {
    Return outputs = Allocate()(convert(args)...);
    if constexpr (std::is_same_v<Return, at::Tensor>) {
      Function()(convert(args)..., outputs);
    } else {
      std::apply([&](auto&... output) { Function()(convert(args)..., output...); }, outputs);
    }
    return outputs;
  }

  // An op with out= arguments, to which the results of `Function` are copied.
  template <class Function, int kOutputs>
  static Return copied(Args&... args) {
    constexpr size_t kInputs = sizeof...(Args) - kOutputs;
    auto all = std::tie(args...);
    return [&]<size_t... In, size_t... O>(std::index_sequence<In...>, std::index_sequence<O...>) -> Return {
      const auto results = Function()(convert(std::get<In>(all))...);
      if constexpr (kOutputs == 1) {
        store_result(std::get<kInputs>(all), results);
        return std::get<kInputs>(all);
      } else {
        (store_result(std::get<kInputs + O>(all), std::get<O>(results)), ...);
        return Return(std::get<kInputs + O>(all)...);
      }
    }(std::make_index_sequence<kInputs>(), std::make_index_sequence<kOutputs>());
  }
};

} // namespace torch_opencl

// The body is a function of Wrapper.
#define TORCH_OPENCL_IMPL(m, NAME, OP, DTYPES, ...) \
  m.impl(                                           \
      NAME,                                         \
      TORCH_FN(                                     \
          (&torch_opencl::Wrapper<at::_ops::OP>::call<&torch_opencl::Wrapper<at::_ops::OP>::__VA_ARGS__, DTYPES>)));
#define TORCH_OPENCL_LAMBDA(FUNCTION) [](auto&&... args) -> decltype(auto) { return FUNCTION(args...); }

#define TORCH_OPENCL_FUNCTIONAL(m, NAME, OP, KERNEL, OUTPUTS, DTYPES) \
  TORCH_OPENCL_IMPL(m, NAME, OP, DTYPES, functional<KERNEL, OUTPUTS>)
#define TORCH_OPENCL_INPLACE(m, NAME, OP, KERNEL, DTYPES) TORCH_OPENCL_IMPL(m, NAME, OP, DTYPES, inplace<KERNEL>)
#define TORCH_OPENCL_OUT(m, NAME, OP, KERNEL, OUTPUTS, DTYPES) \
  TORCH_OPENCL_IMPL(m, NAME, OP, torch_opencl::waits_only(DTYPES), out<KERNEL, OUTPUTS, (DTYPES)>)
#define TORCH_OPENCL_FUNCTION(m, NAME, OP, FUNCTION, DTYPES) \
  TORCH_OPENCL_IMPL(m, NAME, OP, DTYPES, function<decltype(TORCH_OPENCL_LAMBDA(FUNCTION))>)
#define TORCH_OPENCL_ALLOCATING(m, NAME, OP, FUNCTION, ALLOCATE, DTYPES) \
  TORCH_OPENCL_IMPL(m, NAME, OP, DTYPES, allocating<decltype(TORCH_OPENCL_LAMBDA(FUNCTION)), decltype(ALLOCATE)>)
#define TORCH_OPENCL_COPIED(m, NAME, OP, FUNCTION, OUTPUTS, DTYPES) \
  TORCH_OPENCL_IMPL(m, NAME, OP, DTYPES, copied<decltype(TORCH_OPENCL_LAMBDA(FUNCTION)), OUTPUTS>)
#define TORCH_OPENCL_HOST(m, NAME) \
  m.impl(NAME, torch::CppFunction::makeFromBoxedFunction<&torch_opencl::host_kernel>());
